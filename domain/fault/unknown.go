package fault

// What a request names and is not there. Commands, read models and the edge answer alike.

func UnknownClient() *Fault { return New(Missing, "client_unknown", "There is no such client.") }

func UnknownSandbox() *Fault { return New(Missing, "sandbox_unknown", "There is no such sandbox.") }

func UnknownAccount() *Fault { return New(Missing, "account_unknown", "There is no such account.") }

func UnknownMember() *Fault { return New(Missing, "member_unknown", "There is no such member.") }

func UnknownSession() *Fault { return New(Missing, "session_unknown", "There is no such session.") }

func UnknownAPIKey() *Fault { return New(Missing, "api_key_unknown", "There is no such API key.") }

func UnknownUser() *Fault { return New(Missing, "user_unknown", "There is no such user.") }

// NoUserName is UnknownUser for what can name no user.
func NoUserName() *Fault {
	return New(Missing, "user_unknown", "There is no such user. A user is named by its id, usr_…, or by your own, as in ext:u1.")
}

func UnknownConsentLayer() *Fault {
	return New(Missing, "consent_layer_unknown", "There is no such consent layer.")
}

func UnknownClusteringRun() *Fault {
	return New(Missing, "clustering_run_unknown", "There is no such clustering run.")
}

func UnknownCluster() *Fault { return New(Missing, "cluster_unknown", "There is no such cluster.") }

func UnknownSegment() *Fault { return New(Missing, "segment_unknown", "There is no such segment.") }

func UnknownCampaign() *Fault { return New(Missing, "campaign_unknown", "There is no such campaign.") }

func UnknownImpression() *Fault {
	return New(Missing, "impression_unknown", "There is no such impression of this campaign.")
}

func UnknownWebhook() *Fault {
	return New(Missing, "webhook_unknown", "There is no such webhook subscription.")
}

func UnknownDelivery() *Fault { return New(Missing, "delivery_unknown", "There is no such delivery.") }
