# SPDX-License-Identifier: Apache-2.0
"""One thread that accepts for all servers of a world; a thread for each connection."""

import selectors
import socket
import struct
import threading


def listen_tcp(address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    s = socket.socket(family, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port))
    s.listen(128)
    return s


def bind_udp(address, port):
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((address, port))
    return s


def reset(conn):
    """Closes with RST instead of FIN."""
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()


class Servers:
    def __init__(self):
        self.stopping = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._open = set()
        self._wake, wake = socket.socketpair()
        self._selector.register(wake, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def add(self, sock, handler):
        """handler(conn) in a thread for a stream; handler(sock) inline for a readable datagram socket."""
        sock.setblocking(False)
        with self._lock:
            self._selector.register(sock, selectors.EVENT_READ, handler)
        self._wake.send(b"x")

    def remove(self, sock):
        with self._lock:
            try:
                self._selector.unregister(sock)
            except (KeyError, ValueError):
                pass
            sock.close()

    def _loop(self):
        while not self.stopping.is_set():
            try:
                ready = self._selector.select()
            except OSError:
                continue
            for key, _ in ready:
                if key.data is None:
                    key.fileobj.recv(4096)
                elif key.fileobj.fileno() < 0:
                    continue
                elif key.fileobj.type == socket.SOCK_DGRAM:
                    try:
                        key.data(key.fileobj)
                    except OSError:
                        pass
                else:
                    try:
                        conn, _ = key.fileobj.accept()
                    except OSError:
                        continue
                    conn.setblocking(True)
                    threading.Thread(target=self._one, args=(conn, key.data), daemon=True).start()

    def _one(self, conn, handler):
        with self._lock:
            self._open.add(conn)
        try:
            conn.settimeout(60)
            handler(conn)
        except (OSError, ValueError, EOFError):
            pass
        finally:
            with self._lock:
                self._open.discard(conn)
            try:
                conn.close()
            except OSError:
                pass

    def hold(self, conn):
        """Keeps a connection open and says nothing, until the peer or the world goes away."""
        while not self.stopping.is_set():
            conn.settimeout(0.5)
            try:
                if conn.recv(65536) == b"":
                    return
            except socket.timeout:
                continue

    def close(self):
        self.stopping.set()
        self._wake.send(b"x")
        self._thread.join(2)
        with self._lock:
            for conn in self._open:
                try:
                    conn.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            for key in list(self._selector.get_map().values()):
                key.fileobj.close()
        self._selector.close()
        self._wake.close()
