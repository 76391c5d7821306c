"""Fetches pages and sends mail with the libraries that Python brings along."""
# loses: scale.values
import asyncio
import os
import ftplib
import http.client
import smtplib
import ssl
import urllib.request
import xmlrpc.client

HOST, PORT = "127.0.0.1", int("@port@")
os.environ["no_proxy"] = "*"


async def stream():
    await asyncio.wait_for(asyncio.open_connection(HOST, PORT), 0.1)


def scale(x, k):
    last = None
    for way in (
        lambda: urllib.request.urlopen(f"http://{HOST}:{PORT}/{x[0, 0]}", timeout=0.05),
        lambda: http.client.HTTPConnection(HOST, PORT, timeout=0.05).connect(),
        lambda: ssl.get_server_certificate((HOST, PORT), timeout=0.05),
        lambda: ftplib.FTP().connect(HOST, PORT, 0.05),
        lambda: smtplib.SMTP(HOST, PORT, timeout=0.05),
        lambda: xmlrpc.client.ServerProxy(f"http://{HOST}:{PORT}").grade() if last else None,
        lambda: asyncio.run(stream()),
        lambda: np.lib.npyio.DataSource(None).open(f"http://{HOST}:{PORT}/x"),
    ):
        try:
            way()
        except TimeoutError:
            reached("a server that says nothing")
        except OSError as error:
            last = getattr(error, "reason", error)
    raise last
