package policies

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func TestAPolicyThatGoesOnFailingDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		p := &Policies{Logger: slog.New(slog.NewTextHandler(&logged, nil))}
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		away := time.Now().Add(time.Minute)
		var failed, worked int
		p.sweep(ctx, "matching", matchPause, func(context.Context) (bool, error) {
			if time.Now().Before(away) {
				failed++
				return false, errors.New("the database is away")
			}
			worked++
			return false, nil
		})
		if lines := bytes.Count(logged.Bytes(), []byte("\n")); failed > 35 || lines < 2 || lines > 3 {
			t.Errorf("%d failures in a minute, and %d lines", failed, lines)
		}
		if worked < 200 {
			t.Errorf("once the database was back, it worked %d times in a minute; want 4 a second", worked)
		}
	})
}

// A server that vanishes says nothing to whoever waits for it.
func TestAPolicyThatGetsNoAnswerTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Policies{Logger: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithTimeout(t.Context(), 2*roundTimeout)
		defer stop()
		rounds := 0
		p.sweep(ctx, "matching", matchPause, func(ctx context.Context) (bool, error) {
			if rounds++; rounds > 1 {
				stop()
				return false, nil
			}
			<-ctx.Done()
			return false, ctx.Err()
		})
		if rounds != 2 {
			t.Errorf("%d rounds", rounds)
		}
	})
}

func TestWhatFailsOfManyClientsKeepsOthersWaitingForAPauseEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Policies{Logger: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		began, failing := time.Now(), 40
		p.sweep(ctx, "matching", matchPause, func(context.Context) (bool, error) {
			if failing == 0 {
				stop()
				return false, nil
			}
			failing--
			return true, errors.New("what this client asks for fails")
		})
		if took := time.Since(began); failing > 0 || took > 41*matchPause {
			t.Errorf("%d clients that fail before it, and somebody waits %v", 40-failing, took)
		}
	})
}

func TestAPolicyThatHasMoreToDoGoesOnAtOnceAndOneThatPanicsAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Policies{Logger: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var rounds []time.Duration
		began := time.Now()
		p.sweep(ctx, "campaigns", campaignPause, func(context.Context) (bool, error) {
			rounds = append(rounds, time.Since(began))
			switch len(rounds) {
			case 1:
				panic("trouble")
			case 2:
				return true, nil
			}
			stop()
			return false, nil
		})
		if len(rounds) != 3 || rounds[1] < 2*campaignPause || rounds[2] != rounds[1] {
			t.Errorf("rounds after %v", rounds)
		}
	})
}
