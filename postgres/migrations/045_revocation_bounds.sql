-- A client may revoke thousands of keys an hour, and every process polls what was
-- noted: beyond a bound, a note stands for the client as a whole, whose tokens are
-- looked up one by one in the read model.
ALTER TABLE revocation_notes ADD COLUMN client text COLLATE "C"; -- NULL: noted by an older release
CREATE INDEX revocation_notes_client ON revocation_notes (client, noted_at);

-- note_revocation notes what a client has revoked, or the client's own id where
-- most of its revocations are noted already.
CREATE FUNCTION note_revocation(a_client text, a_subject text, a_revoked_at timestamptz, most integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM public.revocation_notes n WHERE n.subject = a_subject) AND (
		SELECT count(*) FROM (
			SELECT FROM public.revocation_notes n
			WHERE n.client = a_client AND n.noted_at > now() - interval '25 hours' LIMIT most
		) noted) >= most THEN
		a_subject := a_client;
	END IF;
	INSERT INTO public.revocation_notes AS n (client, subject, revoked_at) VALUES (a_client, a_subject, a_revoked_at)
	ON CONFLICT (subject) DO UPDATE SET noted_at = clock_timestamp(), client = excluded.client
	-- Pollers look back for a minute longer than they need to.
	WHERE n.noted_at < clock_timestamp() - interval '1 minute';
END $$;
