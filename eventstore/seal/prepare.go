package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"kindred/coalesce"
	"kindred/domain/id"
)

const (
	// MaxPrepare bounds the subjects of one call of Prepare.
	// limit: log | users whose keys one call makes | {MaxPrepare}
	MaxPrepare = 1000

	// limit: log | keys of one statement | {maxGroup}, and {maxWaiting} that wait
	maxGroup     = 4 * MaxPrepare // keys in one statement
	maxWaiting   = 16 * MaxPrepare
	groupTimeout = 10 * time.Second
	// limit: log | name of a client or user, to the keys | {maxName} bytes
	maxName = 200 // bytes of a client's or a subject's name
)

// Prepare makes the keys that the subjects lack, durably, before it returns.
// It fails with ErrErased where the key of one was destroyed, and ErrDeleted where their
// client's was; then the others may have been made all the same. Concurrent calls share
// statements.
func (v *Vault) Prepare(ctx context.Context, client id.Client, subjects ...string) error {
	wanted := make([]Wanted, 0, len(subjects))
	for _, subject := range slices.Compact(slices.Sorted(slices.Values(subjects))) {
		wanted = append(wanted, Wanted{Subject: subject})
	}
	refused, err := v.PrepareEach(ctx, client, wanted)
	return errors.Join(err, errors.Join(refused...))
}

// Wanted is a subject that is to have a key, and what is to find it.
type Wanted struct {
	Subject string
	Lookup  []byte // of Lookup; nil: nothing
}

// PrepareEach is Prepare, each for itself: it says of each subject why it has no
// key, ErrErased or ErrTaken, or nil.
func (v *Vault) PrepareEach(ctx context.Context, client id.Client, wanted []Wanted) (refused []error, err error) {
	if len(wanted) > MaxPrepare {
		return nil, fmt.Errorf("prepare %d subjects: at most %d are allowed", len(wanted), MaxPrepare)
	}
	for _, w := range wanted {
		if err := checkNames(string(client), w.Subject); err != nil {
			return nil, fmt.Errorf("prepare: %w", err)
		}
	}
	asOf := v.Now()
	refused = make([]error, len(wanted))
	var missing []SubjectKey
	var places []int
	for i, w := range wanted {
		if key, found := v.subjects.get(client, w.Subject, asOf, time.Time{}); found {
			refused[i] = key.err()
			continue
		}
		key, _, err := v.draw(ctx, client, w.Subject)
		if err != nil {
			v.giveBack(missing, nil)
			return nil, fmt.Errorf("prepare: %w", err)
		}
		key.Lookup = w.Lookup
		missing, places = append(missing, key), append(places, i)
	}
	if len(missing) == 0 {
		return refused, nil
	}
	stored, err := v.group.Ask(ctx, missing)
	if errors.Is(err, ErrDeleted) { // it may be another client that was: those of one round fail together
		stored, err = v.keys.MakeSubjects(ctx, missing)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err) // they may be stored all the same
	}
	v.giveBack(missing, stored)
	for i, row := range stored {
		w := missing[i]
		if row.Subject != w.Subject || w.Lookup != nil && len(row.Wrapped) > 0 && !bytes.Equal(row.Lookup, w.Lookup) {
			refused[places[i]] = fmt.Errorf("prepare: %w", ErrTaken)
			continue
		}
		if _, err := v.hold(ctx, row, asOf); err != nil {
			if !errors.Is(err, ErrErased) {
				return nil, fmt.Errorf("prepare: %w", err)
			}
			refused[places[i]] = fmt.Errorf("prepare: %w", err)
		}
	}
	return refused, nil
}

// Drawn is a new key for a subject. It counts once it is stored, where the
// subject had none before, and not before the caller has stored it.
type Drawn struct {
	SubjectKey
	key subjectKey
}

// Draw makes a key for a subject without storing it: for a caller that stores it in one
// commit with what it seals.
func (v *Vault) Draw(ctx context.Context, client id.Client, subject string) (Drawn, error) {
	if err := checkNames(string(client), subject); err != nil {
		return Drawn{}, fmt.Errorf("draw a key: %w", err)
	}
	row, secret, err := v.draw(ctx, client, subject)
	if err != nil {
		return Drawn{}, fmt.Errorf("draw a key: %w", err)
	}
	c, err := newCipher(secret)
	return Drawn{row, subjectKey{row.ID, c, LearntUnder(client, subject)}}, err
}

// Known says whether the key of a subject, or its destruction, was seen a
// moment ago.
func (v *Vault) Known(client id.Client, subject string) bool {
	_, found := v.subjects.get(client, subject, v.Now(), time.Time{})
	return found
}

// draw draws a key for a subject and wraps it under the client's, and under an
// epoch.
func (v *Vault) draw(ctx context.Context, client id.Client, subject string) (SubjectKey, []byte, error) {
	root, err := v.makeRoot(ctx, ClientKey, client)
	if err != nil {
		return SubjectKey{}, nil, err
	}
	name, secret, err := newKey(v.entropy)
	if err != nil {
		return SubjectKey{}, nil, err
	}
	key := SubjectKey{Client: client, Subject: subject, WrappedKey: WrappedKey{ID: name, Under: root.id}}
	key.Wrapped, err = wrap(v.entropy, root.cipher, secret, key.bound())
	if err != nil || v.Epochs == nil {
		return key, secret, err
	}
	epoch, err := v.Epochs.Take(ctx)
	if err != nil {
		return SubjectKey{}, nil, err
	}
	key, err = epoch.put(v.entropy, key)
	return key, secret, err
}

// checkNames refuses names that a key table cannot hold, before they could
// spoil the statement of others.
func checkNames(names ...string) error {
	for _, name := range names {
		if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
			return errors.New("not the name of a client or subject")
		}
	}
	return nil
}

// newGroup asks the key table in one statement for what is wanted at the same time.
func newGroup[W any](ask func(context.Context, []W) ([]SubjectKey, error)) *coalesce.Coalescer[[]W, []SubjectKey] {
	return &coalesce.Coalescer[[]W, []SubjectKey]{
		Size: func(wanted []W) int { return len(wanted) },
		Most: maxGroup, Waiting: maxWaiting, Timeout: groupTimeout,
		Answer: func(ctx context.Context, wanted [][]W) ([][]SubjectKey, error) {
			all := slices.Concat(wanted...)
			stored, err := ask(ctx, all)
			if err != nil {
				return nil, err
			}
			if len(stored) != len(all) {
				return nil, fmt.Errorf("the key table answered for %d keys of %d", len(stored), len(all))
			}
			each := make([][]SubjectKey, len(wanted))
			for i, of := range wanted {
				each[i], stored = stored[:len(of)], stored[len(of):]
			}
			return each, nil
		},
	}
}
