"""Signs up, subscribes to an event, has one sent and verifies it."""

import os
import queue
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kindred import Event, Kindred, Verifier, WebhookError

SECRET = "whsec_Zmlyc3Qtc3RlcHMtd2l0aC1raW5kcmVkLQ=="
URL = os.environ.get("KINDRED_URL", "http://127.0.0.1:8080")

events: queue.Queue[Event] = queue.Queue()
verifier = Verifier(secrets=[SECRET])


class Receiver(BaseHTTPRequestHandler):
    """What a server of yours would have: 204 to what it has verified, and 401 to everything else."""

    def do_POST(self) -> None:
        body = self.rfile.read(min(int(self.headers["content-length"]), 1 << 20))
        try:
            events.put(verifier.verify(dict(self.headers), body))
            self.send_response(204)
        except WebhookError:
            self.send_response(401)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


with Kindred(base_url=URL) as nobody:
    signup = nobody.authentication.sign_up(
        {"email": f"{secrets.token_hex(8)}@example.com", "password": secrets.token_hex(16), "company_name": "Acme"}
    )
with Kindred(base_url=URL, token=signup["token"]) as person:
    key = person.api_keys.create({"name": "backend"})
with Kindred(base_url=URL, api_key=key["raw_key"]) as kindred:
    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    hook = kindred.webhooks.create(
        {"url": f"http://127.0.0.1:{receiver.server_port}/hooks", "event_types": ["match.computed"], "secret": SECRET}
    )
    kindred.webhooks.test(hook["id"], {"event_type": "match.computed"})
    event = events.get(timeout=60)
    print("verified", event.delivery["event_type"], event.id)
