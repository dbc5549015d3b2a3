-- Who keeps trying, counted over all processes. Subjects are keyed hashes. What a
-- crash loses is forgiven, so the log of the database does not hold it.
CREATE UNLOGGED TABLE throttles (
	subject  bytea PRIMARY KEY,
	attempts integer     NOT NULL,
	until    timestamptz NOT NULL -- the end of the pause, or the last attempt
);
CREATE INDEX throttles_until ON throttles (until);

-- throttle counts an attempt by each subject in turn, until one has to wait, and
-- returns for how long; 0: none. After its free attempts, each opens a pause that
-- doubles from a second to the longest; a try within it does not prolong it.
-- 15 minutes of quiet are forgiven.
CREATE FUNCTION throttle(subjects bytea[], free integer[], longest interval[]) RETURNS interval
LANGUAGE plpgsql AS $$
DECLARE
	quiet CONSTANT interval := interval '15 minutes';
	made integer;
	paused timestamptz;
	at timestamptz;
	over integer;
BEGIN
	DELETE FROM public.throttles WHERE ctid = ANY (ARRAY (
		SELECT t.ctid FROM public.throttles t WHERE t.until < clock_timestamp() - quiet ORDER BY t.until LIMIT 16 FOR UPDATE SKIP LOCKED));
	FOR i IN 1 .. cardinality(subjects) LOOP
		INSERT INTO public.throttles (subject, attempts, until) VALUES (subjects[i], 0, clock_timestamp()) ON CONFLICT DO NOTHING;
		SELECT t.attempts, t.until INTO made, paused FROM public.throttles t WHERE t.subject = subjects[i] FOR UPDATE;
		at := clock_timestamp();
		CONTINUE WHEN made IS NULL; -- forgotten just now
		IF paused > at THEN
			RETURN paused - at;
		END IF;
		made := CASE WHEN paused < at - quiet THEN 0 ELSE made END + 1;
		over := made - free[i];
		UPDATE public.throttles t SET attempts = made,
			until = at + CASE WHEN over > 0 THEN least(longest[i], interval '1 second' * 2 ^ least(over - 1, 20)) ELSE interval '0' END
		WHERE t.subject = subjects[i];
	END LOOP;
	RETURN interval '0';
END $$;

-- unthrottle takes back an attempt by each subject, and its pause.
CREATE FUNCTION unthrottle(subjects bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. cardinality(subjects) LOOP -- in the order in which throttle locks them
		UPDATE public.throttles t SET attempts = greatest(0, t.attempts - 1), until = least(t.until, clock_timestamp())
		WHERE t.subject = subjects[i];
	END LOOP;
END $$;

-- The hour in which an API key was last exchanged.
CREATE TABLE api_key_uses (
	client  text COLLATE "C" NOT NULL,
	key     text COLLATE "C" NOT NULL,
	used_at timestamptz      NOT NULL,
	PRIMARY KEY (client, key)
) WITH (fillfactor = 70);
