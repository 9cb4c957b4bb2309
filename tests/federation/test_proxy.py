"""The proxy before a SuperLink, with the real program: only what nodes need gets through."""

import http.client
import shutil
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

pytest.importorskip("cryptography")

from fcfl.engines.flower.certificates import make_certificates
from fcfl.engines.flower.proxy import FLEET, proxy_configuration
from fcfl.engines.processes import HOST, free_port, listens, program

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="there is no nginx: apt-get install nginx")


class Answering(BaseHTTPRequestHandler):
    """Stands where the SuperLink does and says which path it was asked."""

    def do_POST(self):
        asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        said = asked if len(asked) > 1000 else self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_PUT = do_DELETE = do_POST

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """Certificates and the port of an nginx before something that answers everything."""
    folder = tmp_path_factory.mktemp("my app")
    make_certificates(folder / "certs", ["north"])
    server = HTTPServer((HOST, 0), Answering)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certs" / "server.pem", folder / "certs" / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port, superlink = free_port(), f"{HOST}:{server.server_address[1]}"
    text = proxy_configuration(folder, superlink=superlink, host=HOST, port=port)
    (folder / "nginx.conf").write_text(text)
    command = [program("nginx"), "-e", "stderr", "-c", str(folder / "nginx.conf")]
    process = subprocess.Popen([*command, "-g", "daemon off;"], stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 30
        while not listens(port) and time.monotonic() < deadline:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
        yield folder, port
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()
        server.shutdown()
        server.server_close()


def ask(proxy, path, method="POST", content=b"{}"):
    folder, port = proxy
    context = ssl.create_default_context(cafile=str(folder / "certs" / "ca.crt"))
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=20)
    try:
        connection.putrequest(method, path, skip_host=False)
        connection.putheader("Content-Length", str(len(content)))
        connection.endheaders(content)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def test_what_nodes_ask_gets_through(proxy):
    for name in FLEET:
        assert ask(proxy, f"/v1/fleet/{name}") == (200, f"/v1/fleet/{name}")


def test_long_answers_pass_both_ways_and_leave_nothing_on_the_servers_disk(proxy):
    """Its worker may be another account, which cannot write into the app's folder."""
    folder, _ = proxy
    long = "curvature " * 300_000
    assert ask(proxy, "/v1/fleet/push-object", content=long.encode()) == (200, long)
    assert not [path for path in folder.glob(".proxy-*/**/*") if path.is_file()]


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/runtime/pull-messages",
        "/v1/fleet/",
        "/v1/fleet/other",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/..%2fcontrol/start-run",
        "/v1/fleet/pull-messages/../../control/start-run",
        "/v1/control/start-run?/v1/fleet/pull-messages",
        "/v1/control/start-run%00/v1/fleet/pull-messages",
        "//v1/control/start-run",
        "/V1/FLEET/pull-messages",
        "/v1/fleet/pull-messages/",
        "/docs",
        "/openapi.json",
    ],
)
def test_everything_else_is_refused(proxy, path):
    status, said = ask(proxy, path)
    assert status in (400, 403) and "start-run" not in said


def test_other_verbs_than_those_of_nodes_are_refused(proxy):
    for method in ("GET", "PUT", "DELETE"):
        assert ask(proxy, "/v1/fleet/pull-messages", method)[0] == 403


def test_what_gets_through_is_the_plain_path(proxy):
    """A path that only nginx reads as a node's must not be read otherwise behind it."""
    status, path = ask(proxy, "/v1/control/../fleet/pull-messages")
    assert (status, path) == (200, "/v1/fleet/pull-messages")


@pytest.mark.parametrize("name", ['a"b', "a$b", "a\\b", "a\nb"])
def test_a_folder_that_nginx_could_misread_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="must be a path that nginx can read"):
        proxy_configuration(tmp_path / name)


def test_the_new_apps_configuration_is_one_that_nginx_accepts(tmp_path):
    from hospital import fcfl

    app = tmp_path / "app"
    assert fcfl("flower", "new", app, "--sites", "north").exit_code == 0
    make_certificates(app / "certs", ["north"])
    command = [program("nginx"), "-t", "-e", "stderr", "-c", str(app / "nginx.conf")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "listen 0.0.0.0:8443 ssl" in (app / "nginx.conf").read_text()
    assert "https://127.0.0.1:8000" in (app / "nginx.conf").read_text()
