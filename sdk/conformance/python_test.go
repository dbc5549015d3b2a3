package conformance

import (
	"os/exec"
	"slices"
	"testing"
)

// runsPython runs a program of Python that fails where something is not as it should be.
func runsPython(t *testing.T, program string) {
	t.Helper()
	t.Parallel()
	if !slices.Contains(sdks(), "python") {
		return
	}
	cmd := exec.CommandContext(t.Context(), pythonOf(), "-c", program)
	cmd.Env = append(cmd.Environ(), "PYTHONPATH=../python/src")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// A pool of processes pickles what a worker raises; one that cannot be read waits for ever.
func TestAFaultOfPythonCrossesProcesses(t *testing.T) {
	runsPython(t, `
import pickle
from kindred import RefusedError
fault = RefusedError(429, "req_1", 1.5, {"code": "rate_limited", "detail": "d", "errors": [{"pointer": "/a", "detail": "is wrong"}]})
fault.attempts, fault.args = 3, (f"{fault}; it may have taken effect",)
other = pickle.loads(pickle.dumps(fault))
assert type(other) is RefusedError and vars(other) == vars(fault) and str(other) == str(fault) != "", (vars(other), str(other))
`)
}

func TestWhatIsNoJSONIsAUsageErrorInPython(t *testing.T) {
	runsPython(t, `
from datetime import datetime
from kindred import Kindred, UsageError
from kindred.testing import FakeKindred
deep = []
for _ in range(100_000):
    deep = [deep]
with FakeKindred() as fake:
    kindred = Kindred(base_url=fake.url, api_key=fake.api_key)
    for value in (float("nan"), datetime.now(), "\ud800", deep):
        user = {"external_id": "u", "traits": {"a": value}}
        for call in (lambda: kindred.users.create(user), lambda: kindred.users.import_([user]), lambda: kindred.users.import_(iter([user]))):
            try:
                call()
            except UsageError:
                continue
            raise AssertionError(value)
`)
}

func TestWhatIsTooLongForAURLIsAUsageErrorInPython(t *testing.T) {
	runsPython(t, `
from kindred import Kindred, UsageError
kindred = Kindred(base_url="http://127.0.0.1:1", token="e30.e30.c2ln")
for call in (lambda: kindred.users.get("ext:" + "a" * 100_000), lambda: next(kindred.users.list(filter="a" * 100_000))):
    try:
        call()
    except UsageError:
        continue
    raise AssertionError
`)
}

// A process may have as many threads as it is let for a moment.
func TestAnExchangeOfPythonThatDidNotBeginIsWaitedForByNobody(t *testing.T) {
	runsPython(t, `
import threading
from kindred import Kindred
from kindred.testing import FakeKindred
start = threading.Thread.start
def refuse(thread):
    threading.Thread.start = start
    raise RuntimeError("can't start new thread")
with FakeKindred() as fake:
    kindred = Kindred(base_url=fake.url, api_key=fake.api_key, timeout=20)
    threading.Thread.start = refuse
    try:
        kindred.client_id()
        raise AssertionError
    except RuntimeError:
        pass
    assert kindred.users.list_page()["data"] == []
`)
}

func TestAnImportOfPythonEndsInItsTime(t *testing.T) {
	runsPython(t, `
import asyncio
import httpx
from kindred import AsyncKindred, Kindred, TookTooLongError
lasting = 1_000_000 * [{"external_id": "u"}]
async def waiting():
    yield {"external_id": "u"}
    await asyncio.Event().wait()
async def broken():
    yield {"external_id": "u"}
    raise TimeoutError("theirs")
reads = httpx.MockTransport(lambda request: httpx.Response(200, json={}))
options = {"base_url": "http://127.0.0.1:1", "token": "e30.e30.c2ln", "transport": reads}
rest = iter(lasting)
try:
    Kindred(**options).users.import_(rest, timeout=0.1)
    raise AssertionError("a thread's has no end")
except TookTooLongError as late:
    assert "may have taken effect" in str(late), late
assert next(rest, None), "a thread's goes on to its end"
async def main():
    kindred = AsyncKindred(**options)
    for lines in (iter(lasting), waiting()):
        try:
            await asyncio.wait_for(kindred.users.import_(lines, timeout=0.1), 20)
            raise AssertionError("a task's goes on")
        except TookTooLongError as late:
            assert "may have taken effect" in str(late), late
    try:
        await kindred.users.import_(broken())
        raise AssertionError("what makes the lines has failed")
    except TimeoutError as fault:
        assert str(fault) == "theirs", fault
asyncio.run(main())
`)
}

// Each read of a socket was given the time of all: an answer that began late and then stopped took it twice.
func TestTheBodyOfAnAnswerHasWhatIsLeftOfItsTimeInPython(t *testing.T) {
	runsPython(t, `
import asyncio
import time
import httpx
from kindred import AsyncKindred, Kindred
now, given = 1000.0, []
time.monotonic = lambda: now
class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self, request):
        self.request = request
    def __iter__(self):
        given.append(self.request.extensions["timeout"]["read"])
        yield b"{}"
    async def __aiter__(self):
        given.append(self.request.extensions["timeout"]["read"])
        yield b"{}"
def late(request):
    global now
    now += 30
    return httpx.Response(200, headers={"Content-Type": "application/json"}, stream=Body(request))
options = {"base_url": "http://127.0.0.1:1", "token": "e30.e30.c2ln", "transport": httpx.MockTransport(late)}
Kindred(**options).users.get("usr_1")
Kindred(**options, timeout=32).users.get("usr_1")
async def main():
    await AsyncKindred(**options, timeout=32).users.get("usr_1")
asyncio.run(main())
assert given == [5, 2, 2], given
`)
}

func TestTheHeadOfAnAnswerHasTheTimeOfItsCallInPythonsTasks(t *testing.T) {
	runsPython(t, `
import asyncio
from kindred import AsyncKindred, TookTooLongError
async def main():
    gone = asyncio.Event()
    async def drips(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        try:
            while True:
                writer.write(b"a")
                await writer.drain()
                await asyncio.sleep(0.05)
        except ConnectionError:
            gone.set()
    server = await asyncio.start_server(drips, "127.0.0.1", 0)
    kindred = AsyncKindred(base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", token="e30.e30.c2ln", timeout=0.5)
    try:
        await asyncio.wait_for(kindred.users.get("usr_1"), 20)
        raise AssertionError("an answer")
    except TookTooLongError:
        pass
    await asyncio.wait_for(gone.wait(), 20)  # the connection is given up, too
asyncio.run(main())
`)
}

// httpx unpacks each coding without a bound: 64 KiB that are packed twice may be many GB.
func TestAnAnswerThatIsPackedTwiceIsNoneInPython(t *testing.T) {
	runsPython(t, `
import asyncio
import gzip
import httpx
from kindred import AnswerError, AsyncKindred, Kindred
unpacked = []
class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __iter__(self):
        unpacked.append(True)
        yield gzip.compress(gzip.compress(b"{}"))
    async def __aiter__(self):
        unpacked.append(True)
        yield gzip.compress(gzip.compress(b"{}"))
headers = {"Content-Type": "application/json", "Content-Encoding": "gzip, gzip"}
for status in (200, 400):
    twice = httpx.MockTransport(lambda request: httpx.Response(status, headers=headers, stream=Body()))
    options = {"base_url": "http://127.0.0.1:1", "token": "e30.e30.c2ln", "transport": twice}
    for call in (lambda: Kindred(**options).users.get("usr_1"), lambda: asyncio.run(AsyncKindred(**options).users.get("usr_1"))):
        try:
            call()
            raise AssertionError("it was unpacked")
        except AnswerError as fault:
            assert "gzip, gzip" in str(fault), fault
assert not unpacked
`)
}

// Types let a text be given, which is a sequence of texts: whoever signed with one of its letters was verified.
func TestATextIsNoListOfSecretsInPython(t *testing.T) {
	runsPython(t, `
from kindred import UsageError, Verifier
for options in ({"secrets": "whsec_c2VjcmV0"}, {"public_keys": "whpk_c2VjcmV0"}):
    try:
        Verifier(**options)
    except UsageError:
        continue
    raise AssertionError(options)
`)
}

// Servers of asyncio read headers so (PEP 383).
func TestADeliveryOfPythonWhoseIDIsNoTextIsRefused(t *testing.T) {
	runsPython(t, `
import time
from kindred import Verifier, WebhookError
headers = {"webhook-id": b"evt_\x80".decode(errors="surrogateescape"), "webhook-timestamp": str(int(time.time())), "webhook-signature": "v1,AAAA"}
try:
    Verifier(secrets=["secret"]).verify(headers, b"{}")
    raise AssertionError("verified")
except WebhookError as refused:
    assert refused.reason == "signature_wrong", refused
`)
}

func TestAnExchangeThatFailsWhenNobodyWaitsIsNotLoggedInPythonsTasks(t *testing.T) {
	runsPython(t, `
import asyncio
import gc
import httpx
from kindred import AsyncKindred
async def main():
    logged, asked, answers = [], asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda loop, told: logged.append(told))
    async def refuses(request):
        asked.set()
        await answers.wait()
        return httpx.Response(403)
    kindred = AsyncKindred(base_url="http://127.0.0.1:1", api_key="kin_live_1", transport=httpx.MockTransport(refuses))
    call = asyncio.create_task(kindred.users.get("usr_1"))
    await asked.wait()
    call.cancel()
    await asyncio.wait([call])
    answers.set()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
    gc.collect()
    assert call.cancelled() and not logged, logged
asyncio.run(main())
`)
}

// Servers that load a program and then fork it would have two processes read the answers of one connection.
func TestAForkOfPythonSharesNoConnection(t *testing.T) {
	runsPython(t, `
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from kindred import Kindred
ports = []
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        ports.append(self.client_address[1])
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
    def log_message(self, *args):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
kindred = Kindred(base_url=f"http://127.0.0.1:{server.server_port}", token="e30.e30.c2ln")
kindred.users.get("usr_1")
child = os.fork()
if child == 0:
    kindred.users.get("usr_1")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
kindred.users.get("usr_1")
assert ports[0] == ports[2] != ports[1], ports
`)
}

// httpcore keeps the connection of a call that is cancelled when it is there and nothing was sent, and uses it no more.
func TestACancelledCallOfPythonsTasksLeavesNoConnection(t *testing.T) {
	runsPython(t, `
import asyncio
from kindred import AsyncKindred
async def main():
    open_, none = set(), asyncio.Event()
    async def silent(reader, writer):
        open_.add(writer)
        await reader.read()
        writer.close()
        open_.remove(writer)
        if not open_:
            none.set()
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    kindred = AsyncKindred(base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", token="e30.e30.c2ln")
    for steps in range(80):  # of the event loop, after which it is cancelled
        call = asyncio.create_task(kindred.users.get("usr_1"))
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
    none.clear()
    if open_:
        await asyncio.wait_for(none.wait(), 20)
asyncio.run(main())
`)
}

// Each raised an error of Python or httpx, or was sent as something else: of one user, the names of its fields as lines.
func TestWhatCannotBeUsedIsAUsageErrorInPython(t *testing.T) {
	runsPython(t, `
from kindred import Kindred, UsageError, Verifier
from kindred.testing import FakeKindred, signed
headers, body = signed("secret", "match.computed", {"client_id": "cli_1"})
verifier = Verifier(secrets=["secret"])
for given in (body, bytearray(body), memoryview(body)):
    assert verifier.verify(headers, given).delivery["data"]["client_id"] == "cli_1"
    verifier.verify_contract(headers, given)
with FakeKindred() as fake:
    kindred = Kindred(base_url=fake.url, api_key=fake.api_key)
    for lines in (bytearray(b'{"external_id":"u"}'), memoryview(b'{"external_id":"v"}')):
        assert kindred.users.import_(lines)["created"] == 1
    sent = len(fake.requests)
    closed = Kindred(base_url=fake.url, api_key=fake.api_key)
    users = closed.users.list()
    closed.close()
    for call in (
        lambda: verifier.verify(headers, {"event_type": "match.computed"}),
        lambda: verifier.verify_contract(headers, body.decode()),
        lambda: kindred.users.get(None),
        lambda: kindred.users.import_(None),
        lambda: kindred.users.import_({"external_id": "u"}),
        lambda: kindred.users.import_later(5),
        lambda: next(users),
    ):
        try:
            call()
        except UsageError:
            continue
        raise AssertionError("it was taken")
    assert len(fake.requests) == sent
`)
}
