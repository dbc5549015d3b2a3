#!/usr/bin/env python3
"""Check an export of a client's history, with nothing but Python's standard library.

    verify-history.py AUDIT-JWKS.json EXPORT.ndjson [KEPT-HEAD ...]

It follows the rules in the README, "Verify a history", and shares no code with kindred.
A file with a head that was kept is a JWS, a proof, or an older export.
Exit status: 0 genuine, 1 not, 2 the arguments cannot be used.
"""
import base64, hashlib, json, struct, sys

# ---- Ed25519 (RFC 8032, section 6), verification alone
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)

def add(a, b):
    A, B = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    C, E = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = B - A, E - C, E + C, B + A
    return e * f % P, g * h % P, f * g % P, e * h % P

def times(n, point):
    out = (0, 1, 1, 0)
    while n:
        if n & 1:
            out = add(out, point)
        point, n = add(point, point), n >> 1
    return out

def recover(y, sign):
    if y >= P:
        return None
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P:
        x = x * ROOT % P
    if (x * x - x2) % P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return x, y, 1, x * y % P

def decompress(raw):
    y = int.from_bytes(raw, "little")
    return recover(y & (1 << 255) - 1, y >> 255)

BASE = recover(4 * pow(5, P - 2, P) % P, 0)

def ed25519(public, message, signature):
    if len(public) != 32 or len(signature) != 64:
        return False
    a, r, s = decompress(public), decompress(signature[:32]), int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= L:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % L
    left, right = times(s, BASE), add(r, times(h, a))
    return (left[0] * right[2] - right[0] * left[2]) % P == 0 and (left[1] * right[2] - right[1] * left[2]) % P == 0

# ---- heads: JWS, compact, EdDSA
def unbase64(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

def open_head(keys, jws):
    header, payload, signature = jws.split(".")
    h = json.loads(unbase64(header))
    if h.get("alg") != "EdDSA" or h.get("typ") != "kindred-head" or h.get("kid") not in keys:
        raise ValueError("not signed by a known audit key")
    if not ed25519(keys[h["kid"]], f"{header}.{payload}".encode(), unbase64(signature)):
        raise ValueError("the signature is wrong")
    return json.loads(unbase64(payload))

def read_keys(name):
    with open(name, encoding="utf-8") as f:
        return {k["kid"]: unbase64(k["x"]) for k in json.load(f)["keys"] if k["crv"] == "Ed25519"}

def read_heads(name):
    """The heads in a file: a JWS by itself, or JSON lines with one in "head", which a proof and an export are."""
    with open(name, encoding="utf-8") as f:
        lines = [line.strip() for line in f]
    heads = [json.loads(line).get("head") if line.startswith("{") else line for line in lines]
    if not any(heads):
        raise ValueError("there is no head in it")
    return [head for head in heads if head]

# ---- events and the tree
ALPHABET = "0123456789abcdefghijklmnopqrstuv"

def event_bytes(name):
    if not name.startswith("evt_") or len(name) != 30:
        raise ValueError(f"{name} is no event id")
    n = 0
    for c in name[4:]:
        n = n << 5 | ALPHABET.index(c)
    if n & 3:
        raise ValueError(f"{name} is no event id")
    return (n >> 2).to_bytes(16, "big")

def event_hash(e):
    h = hashlib.sha256(b"kindred.event.1")
    for part in (event_bytes(e["id"]), e["stream"].encode(), struct.pack(">q", e["revision"]),
                 e["type"].encode(), e["data"].encode("utf-8", "surrogatepass"), e["meta"].encode("utf-8", "surrogatepass")):
        h.update(struct.pack(">Q", len(part)))
        h.update(part)
    return h.digest()

def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()

class Tree:
    def __init__(self):
        self.size, self.peaks = 0, []

    def append(self, event):
        node, n = sha(b"\0", event), self.size
        while n & 1:
            node, n = sha(b"\1", self.peaks.pop(), node), n >> 1
        self.peaks.append(node)
        self.size += 1

    def root(self):
        if not self.peaks:
            return sha()
        root = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            root = sha(b"\1", peak, root)
        return root

FIELDS = {"head", "ordinal", "position", "id", "type", "version", "stream", "revision", "recorded_at", "actor",
          "causation_id", "correlation_id", "data", "meta", "hash", "personal", "erased", "missing"}

def once(pairs):
    """An object whose names differ: of two that are alike, readers show one or the other."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a field that is there twice")
    return fields

UNREADABLE = ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error

def main(jwks, export, *kept):
    name = jwks
    try:
        keys, outside = read_keys(jwks), []
        for name in kept:
            outside += [open_head(keys, head) for head in read_heads(name)]
        name = export
        with open(export, "rb") as lines:
            return verify(keys, lines, outside)
    except (OSError, *UNREADABLE) as e:
        print(f"{name} cannot be used: {e!r}", file=sys.stderr)
        return 2

def verify(keys, lines, outside):
    wrong, tree, tips, client, last_is_head = [], Tree(), {}, None, False

    def tell(n, what):
        wrong.append(what)
        print(f"line {n}: {what}")

    for n, text in enumerate(lines, 1):
        try:
            line = json.loads(text.decode(), object_pairs_hook=once)
            last_is_head = "head" in line
            if last_is_head and len(line) > 1 or line.keys() - FIELDS:
                raise ValueError("fields that no such line has")
            if last_is_head:
                head = open_head(keys, line["head"])
                client = client or head["client"]
                if head["client"] != client or head["size"] != tree.size or head["root"] != tree.root().hex():
                    tell(n, f"the {tree.size} events before it are not what the head commits to")
                continue
            name = f"event {line['ordinal']}, {line.get('id')}"
            if line["ordinal"] is None:
                tell(n, name + ": it was inserted into the log")
                continue
            if line["ordinal"] != tree.size:
                tell(n, f"{name}: out of order, {tree.size} comes next")
            if line.get("missing"):
                tell(n, name + ": it was taken out of the log")
                tree.append(bytes.fromhex(line["hash"]))
            else:
                digest = event_hash(line)
                if digest.hex() != line["hash"]:
                    tell(n, name + ": it was changed")
                tree.append(digest)
                meta = json.loads(line["meta"])
                client = client or meta["client"]
                shown = (line.get("actor", ""), line["version"], line.get("causation_id", ""), line.get("correlation_id", ""))
                said = (meta["actor"], meta["version"], meta.get("causation", ""), meta.get("correlation", ""))
                if meta["client"] != client or shown != said or line["recorded_at"] != meta["recorded_at"]:
                    tell(n, name + ": what is shown of it is not what its envelope says")
                revision, before = tips.get(line["stream"], (-1, ""))
                if line["revision"] != revision + 1 or meta.get("previous", "") != before:
                    tell(n, name + ": the event before it in its stream is missing, or was changed")
                tips[line["stream"]] = line["revision"], digest.hex()
        except UNREADABLE as e:
            last_is_head = False
            tell(n, f"cannot be read: {e!r}")
            continue
        for head in outside:
            if head["size"] == tree.size and (head["root"] != tree.root().hex() or head["client"] != client):
                tell(n, f"the first {tree.size} events are not what the head that was kept commits to")
    if not last_is_head:
        tell(0, "the export does not end with a signed head")
    if any(head["size"] > tree.size for head in outside):
        tell(0, "a head that was kept commits to more events than there are")
    print("not genuine" if wrong else f"genuine: {tree.size} events of {client}, root {tree.root().hex()}")
    if not wrong and not outside:
        print("No head that was kept is given: what happened after these events may have been cut off.")
    return 1 if wrong else 0

if __name__ == "__main__":
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(*sys.argv[1:]))
