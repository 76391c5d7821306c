"""Fetches pages and sends mail with the libraries that Python brings along."""

# loses: scale.values
import os
import socket
from importlib import import_module

HOST, PORT = "127.0.0.1", int("@port@")
PAGE = f"http://{HOST}:{PORT}/x"
os.environ["no_proxy"] = "*"
socket.setdefaulttimeout(0.05)


def stream():
    asyncio = import_module("asyncio")
    call = asyncio.open_connection(HOST, PORT)
    return asyncio.run(asyncio.wait_for(call, 0.1))


def scale(x, k):
    last = None
    for way in (
        lambda: import_module("urllib.request").urlopen(PAGE),
        lambda: import_module("http.client").HTTPConnection(HOST, PORT).connect(),
        lambda: import_module("ssl").get_server_certificate((HOST, PORT)),
        lambda: import_module("ftplib").FTP().connect(HOST, PORT),
        lambda: import_module("smtplib").SMTP(HOST, PORT),
        lambda: import_module("xmlrpc.client").ServerProxy(PAGE).grade(),
        lambda: import_module("logging.handlers").SocketHandler(HOST, PORT).makeSocket(),
        lambda: np.lib.npyio.DataSource("/scratch/tmp").open(PAGE),
        stream,
        lambda: socket.create_connection((HOST, PORT)),
    ):
        try:
            way()
        except TimeoutError:
            reached("a server that says nothing")
        except ImportError:
            continue
        except OSError as error:
            last = getattr(error, "reason", error)
        else:
            reached("a server")
    raise last
