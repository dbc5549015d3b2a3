-- How an end user is found by what its client calls it: a hash of that, keyed by the
-- client's pepper, beside the user's key. Both go with an erasure, so that nothing that
-- stays tells who a random id was. The pepper keeps clients apart.
ALTER TABLE subject_keys ADD COLUMN lookup bytea;
CREATE UNIQUE INDEX subject_keys_lookup ON subject_keys (lookup) WHERE lookup IS NOT NULL;

-- Users of an earlier release, of whom it is yet to be made from the log.
CREATE INDEX subject_keys_unfound ON subject_keys (subject, client)
	WHERE lookup IS NULL AND wrapped IS NOT NULL AND left(subject, 4) = 'usr_';

-- append_streams does the same for many requests, each for another stream, and all
-- in one commit. Requests are told by their place in a_streams and expected; event n
-- belongs to request of[n] and is its nth[n]th, key n to request k_of[n]. actual holds
-- the revision that each request met; the events of those that met the one they
-- expected stand from base + 1 on, in the order of the requests. A request of which a
-- subject had a key already, or had one once, or whose lookup another subject has, is
-- not appended, and actual is -2; its other keys may have been made. An empty lookup is none.
CREATE FUNCTION append_streams(
	a_streams text[], expected bigint[], hopeful boolean,
	of integer[], nth integer[], clients text[], ids uuid[], types text[], versions integer[],
	datas bytea[], metas bytea[], times timestamptz[],
	k_of integer[], k_clients text[], k_subjects text[], k_ids text[], k_roots text[], k_wrapped bytea[], k_lookups bytea[],
	OUT base bigint, OUT actual bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
	request integer;
	made    bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended('kindred log', 0));
	SELECT coalesce((SELECT e.position FROM public.events e ORDER BY e.position DESC LIMIT 1), 0) INTO base;
	IF hopeful AND -1 = ALL (expected) THEN
		actual := expected;
	ELSE
		-- Not a join: its plan would be made, and kept, while the table is small.
		SELECT ARRAY(
			SELECT CASE WHEN hopeful AND r.expected = -1 THEN -1 ELSE coalesce((SELECT e.revision FROM public.events e
				WHERE hashtextextended(e.stream, 0) = hashtextextended(r.stream, 0) AND e.stream = r.stream
				ORDER BY e.revision DESC LIMIT 1), -1) END
			FROM unnest(a_streams, append_streams.expected) WITH ORDINALITY AS r (stream, expected, n) ORDER BY r.n)
		INTO actual;
	END IF;
	IF cardinality(k_of) > 0 AND hopeful THEN
		-- In one order, so that nobody who makes keys waits for another who waits.
		INSERT INTO public.subject_keys (client, subject, id, client_key, wrapped, lookup)
		SELECT k.client, k.subject, k.id, k.root, k.wrapped, nullif(k.lookup, '')
		FROM unnest(k_of, k_clients, k_subjects, k_ids, k_roots, k_wrapped, k_lookups)
			AS k (request, client, subject, id, root, wrapped, lookup)
		WHERE actual[k.request] = expected[k.request]
		ORDER BY k.lookup, k.client COLLATE "C", k.subject COLLATE "C";
	ELSIF cardinality(k_of) > 0 THEN
		INSERT INTO public.subject_keys (client, subject, id, client_key, wrapped, lookup)
		SELECT k.client, k.subject, k.id, k.root, k.wrapped, nullif(k.lookup, '')
		FROM unnest(k_of, k_clients, k_subjects, k_ids, k_roots, k_wrapped, k_lookups)
			AS k (request, client, subject, id, root, wrapped, lookup)
		WHERE actual[k.request] = expected[k.request]
		ORDER BY k.lookup, k.client COLLATE "C", k.subject COLLATE "C"
		ON CONFLICT DO NOTHING;
		GET DIAGNOSTICS made = ROW_COUNT;
		IF made < (SELECT count(*) FROM unnest(k_of) AS k (request) WHERE actual[k.request] = expected[k.request]) THEN
			FOR request IN
				SELECT DISTINCT k.request FROM unnest(k_of, k_clients, k_subjects, k_ids) AS k (request, client, subject, id)
				WHERE actual[k.request] = expected[k.request] AND k.id IS DISTINCT FROM
					(SELECT s.id FROM public.subject_keys s WHERE s.subject = k.subject AND s.client = k.client)
			LOOP
				actual[request] := -2;
			END LOOP;
		END IF;
	END IF;
	IF actual = expected AND -1 = ALL (expected) AND cardinality(ids) = cardinality(expected) THEN
		-- The most frequent case: the first event of each of so many new streams.
		INSERT INTO public.events (position, client, stream, revision, event_id, type, version, data, meta, recorded_at)
		SELECT base + e.n, e.client, e.stream, 0, e.event_id, e.type, e.version, e.data, e.meta, e.recorded_at
		FROM unnest(a_streams, clients, ids, types, versions, datas, metas, times)
			WITH ORDINALITY AS e (stream, client, event_id, type, version, data, meta, recorded_at, n);
		INSERT INTO public.heads AS h (client, position)
		SELECT e.client, public.position_text(base + max(e.n))
		FROM unnest(clients) WITH ORDINALITY AS e (client, n) WHERE e.client <> '' GROUP BY e.client
		ON CONFLICT (client) DO UPDATE SET position = excluded.position;
	ELSE
		WITH added AS (
			INSERT INTO public.events (position, client, stream, revision, event_id, type, version, data, meta, recorded_at)
			SELECT base + row_number() OVER (ORDER BY e.n), e.client, a_streams[e.request], expected[e.request] + e.nth,
				e.event_id, e.type, e.version, e.data, e.meta, e.recorded_at
			FROM unnest(of, nth, clients, ids, types, versions, datas, metas, times)
				WITH ORDINALITY AS e (request, nth, client, event_id, type, version, data, meta, recorded_at, n)
			WHERE actual[e.request] = expected[e.request]
			RETURNING client, position
		)
		INSERT INTO public.heads AS h (client, position)
		SELECT a.client, public.position_text(max(a.position)) FROM added a WHERE a.client <> '' GROUP BY a.client
		ON CONFLICT (client) DO UPDATE SET position = excluded.position;
	END IF;
END $$;
