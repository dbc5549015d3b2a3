module kindred/sdk/go

go 1.25.0
