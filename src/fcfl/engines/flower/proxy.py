"""The proxy before a SuperLink: only what nodes need can be reached from outside.

A SuperLink serves nodes, users and server apps on one port. Whoever reaches it may start an app at
every site, so it listens on loopback, and nginx passes on the nodes' own paths and nothing else.
"""

from pathlib import Path

FLEET = (
    "register-node", "activate-node", "deactivate-node", "unregister-node", "send-node-heartbeat",
    "pull-messages", "push-messages", "get-run", "get-fab", "push-object", "pull-object",
    "confirm-message-received",
)  # fmt: skip

_CONFIGURATION = """\
# The proxy before the SuperLink, written by `fcfl flower new`. Start it with
#     nginx -c {here}/nginx.conf
# after `fcfl flower certs`. From outside only port {port} is open; the SuperLink stays on loopback.
pid "{here}/proxy.pid";
error_log "{here}/proxy-errors.log";
worker_processes 1;
events {{ worker_connections 1024; }}
http {{
  access_log "{here}/proxy-access.log";
  client_body_temp_path "{here}/.proxy-body";
  proxy_temp_path "{here}/.proxy-proxy";
  fastcgi_temp_path "{here}/.proxy-fastcgi";
  uwsgi_temp_path "{here}/.proxy-uwsgi";
  scgi_temp_path "{here}/.proxy-scgi";
  client_max_body_size 600m;
  server_tokens off;
  server {{
    listen {host}:{port} ssl;
    ssl_certificate "{here}/certs/server.pem";
    ssl_certificate_key "{here}/certs/server.key";
    ssl_protocols TLSv1.2 TLSv1.3;
    # What SuperNodes ask, by name (Flower 1.36 to 1.41). Starting runs, registering keys and
    # everything else is for this machine alone.
    location ~ ^/v1/fleet/({fleet})$ {{
      limit_except POST {{ deny all; }}
      proxy_pass https://{superlink}$uri;
      proxy_http_version 1.1;
      # Answers pass through and are never written to this machine's disk by the proxy.
      proxy_request_buffering off;
      proxy_buffering off;
      proxy_ssl_verify on;
      proxy_ssl_name localhost;
      proxy_ssl_trusted_certificate "{here}/certs/ca.crt";
      proxy_read_timeout 600s;
      proxy_send_timeout 600s;
    }}
    location / {{ return 403; }}
  }}
}}
"""


def proxy_configuration(
    folder: Path,
    *,
    superlink: str = "127.0.0.1:8000",
    host: str = "0.0.0.0",
    port: int = 8443,
) -> str:
    """What nginx reads: TLS outside, the nodes' paths only, the SuperLink behind it."""
    here = folder.absolute().as_posix()
    if not here.isprintable() or any(character in here for character in '"$\\'):
        raise ValueError(
            f"`folder` must be a path that nginx can read, without double quotes, $ and backslash, "
            f"got {here!r}."
        )
    fleet = "|".join(FLEET)
    return _CONFIGURATION.format(here=here, host=host, port=port, superlink=superlink, fleet=fleet)
