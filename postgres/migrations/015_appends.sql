-- Appends that bring the keys of new subjects along, in the same commit, and
-- that say where they ended.

CREATE OR REPLACE FUNCTION append_one(
	a_stream text, a_expected bigint, clients text[], ids uuid[], types text[], versions integer[],
	datas bytea[], metas bytea[], times timestamptz[], OUT base bigint, OUT actual bigint
) LANGUAGE plpgsql AS $$
BEGIN
	-- Each statement takes a snapshot of its own, those below after the lock.
	PERFORM pg_advisory_xact_lock(hashtextextended('kindred log', 0));
	actual := coalesce((SELECT s.revision FROM public.streams s WHERE s.stream = a_stream), -1);
	base := coalesce((SELECT max(e.position) FROM public.events e), 0);
	IF actual <> a_expected THEN
		RETURN;
	END IF;
	INSERT INTO public.events (position, client, stream, revision, event_id, type, version, data, meta, recorded_at)
	SELECT base + e.n, e.client, a_stream, a_expected + e.n, e.event_id, e.type, e.version, e.data, e.meta, e.recorded_at
	FROM unnest(clients, ids, types, versions, datas, metas, times)
		WITH ORDINALITY AS e (client, event_id, type, version, data, meta, recorded_at, n);
	INSERT INTO public.streams AS s (stream, client, revision)
	VALUES (a_stream, clients[1], a_expected + cardinality(ids))
	ON CONFLICT (stream) DO UPDATE SET revision = excluded.revision;
	INSERT INTO public.heads AS h (client, position)
	SELECT e.client, public.position_text(base + max(e.n))
	FROM unnest(clients) WITH ORDINALITY AS e (client, n) WHERE e.client <> '' GROUP BY e.client
	ON CONFLICT (client) DO UPDATE SET position = excluded.position;
	PERFORM pg_notify('kindred_log', public.position_text(base + cardinality(ids)));
END $$;

-- append_keyed is append_batch with keys: key n belongs to request k_of[n]. A
-- request of which a subject had a key already, or had one once, is not
-- appended, and actual is -2; its other keys may have been made.
CREATE FUNCTION append_keyed(
	a_streams text[], owners text[], expected bigint[], sizes integer[],
	of integer[], nth integer[], clients text[], ids uuid[], types text[], versions integer[],
	datas bytea[], metas bytea[], times timestamptz[],
	k_of integer[], k_clients text[], k_subjects text[], k_ids text[], k_roots text[], k_wrapped bytea[],
	OUT base bigint, OUT actual bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
	request  integer;
	made     bigint;
	appended bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended('kindred log', 0));
	base := coalesce((SELECT max(e.position) FROM public.events e), 0);
	-- Not a join: its plan would be made, and kept, while the table is small.
	actual := ARRAY(
		SELECT coalesce((SELECT s.revision FROM public.streams s WHERE s.stream = r.stream), -1)
		FROM unnest(a_streams) WITH ORDINALITY AS r (stream, n) ORDER BY r.n);
	IF cardinality(k_of) > 0 THEN
		-- In one order, so that nobody who makes keys waits for another who waits.
		INSERT INTO public.subject_keys (client, subject, id, client_key, wrapped)
		SELECT k.client, k.subject, k.id, k.root, k.wrapped
		FROM unnest(k_of, k_clients, k_subjects, k_ids, k_roots, k_wrapped) AS k (request, client, subject, id, root, wrapped)
		WHERE actual[k.request] = expected[k.request]
		ORDER BY k.client COLLATE "C", k.subject COLLATE "C"
		ON CONFLICT (client, subject) DO NOTHING;
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
	IF actual = expected AND expected = array_fill(-1::bigint, ARRAY[cardinality(expected)]) AND cardinality(ids) = cardinality(expected) THEN
		-- The most frequent case: the first event of each of so many new streams.
		INSERT INTO public.events (position, client, stream, revision, event_id, type, version, data, meta, recorded_at)
		SELECT base + e.n, e.client, e.stream, 0, e.event_id, e.type, e.version, e.data, e.meta, e.recorded_at
		FROM unnest(a_streams, clients, ids, types, versions, datas, metas, times)
			WITH ORDINALITY AS e (stream, client, event_id, type, version, data, meta, recorded_at, n);
		INSERT INTO public.heads AS h (client, position)
		SELECT e.client, public.position_text(base + max(e.n))
		FROM unnest(clients) WITH ORDINALITY AS e (client, n) WHERE e.client <> '' GROUP BY e.client
		ON CONFLICT (client) DO UPDATE SET position = excluded.position;
		INSERT INTO public.streams (stream, client, revision)
		SELECT r.stream, r.owner, 0 FROM unnest(a_streams, owners) AS r (stream, owner);
		PERFORM pg_notify('kindred_log', public.position_text(base + cardinality(ids)));
		RETURN;
	END IF;
	WITH added AS (
		INSERT INTO public.events (position, client, stream, revision, event_id, type, version, data, meta, recorded_at)
		SELECT base + row_number() OVER (ORDER BY e.n), e.client, a_streams[e.request], expected[e.request] + e.nth,
			e.event_id, e.type, e.version, e.data, e.meta, e.recorded_at
		FROM unnest(of, nth, clients, ids, types, versions, datas, metas, times)
			WITH ORDINALITY AS e (request, nth, client, event_id, type, version, data, meta, recorded_at, n)
		WHERE actual[e.request] = expected[e.request]
		RETURNING client, position
	), told AS (
		INSERT INTO public.heads AS h (client, position)
		SELECT a.client, public.position_text(max(a.position)) FROM added a WHERE a.client <> '' GROUP BY a.client
		ON CONFLICT (client) DO UPDATE SET position = excluded.position
	)
	SELECT count(*) INTO appended FROM added;
	IF appended = 0 THEN
		RETURN;
	END IF;
	INSERT INTO public.streams (stream, client, revision)
	SELECT r.stream, r.owner, r.size - 1
	FROM unnest(a_streams, owners, expected, sizes, actual) AS r (stream, owner, expected, size, actual)
	WHERE r.expected = -1 AND r.actual = -1;
	INSERT INTO public.streams AS s (stream, client, revision)
	SELECT r.stream, r.owner, r.expected + r.size
	FROM unnest(a_streams, owners, expected, sizes, actual) AS r (stream, owner, expected, size, actual)
	WHERE r.expected >= 0 AND r.actual = r.expected
	ON CONFLICT (stream) DO UPDATE SET revision = excluded.revision;
	PERFORM pg_notify('kindred_log', public.position_text(base + appended));
END $$;
