"""A local hub: a server in this process that answers huggingface_hub's requests to upload and download."""

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Cut(bytes):
    """A file of which a download gets half before the connection ends."""


class Stalled(bytes):
    """A file of which a download gets half, and nothing more on an open connection."""


@contextmanager
def serving():
    """Yield (address, {repository: {file: bytes}}, requests) of a hub that stores what it receives."""
    repositories, asked = {}, []

    class Hub(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            pass

        def answer(self, content, status=200, headers=None, shown=True):
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            if shown:
                incomplete = isinstance(content, (Cut, Stalled))
                self.wfile.write(body[: len(body) // 2] if incomplete else body)
                self.close_connection = isinstance(content, Cut)

        def body(self):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        def commit_of(self, name):
            return hashlib.sha1(repr(sorted(repositories[name].items())).encode()).hexdigest()

        def do_POST(self):
            asked.append(("POST", self.path))
            content = self.body()
            if self.path == "/api/repos/create":
                said = json.loads(content)
                name = "/".join(part for part in (said.get("organization"), said["name"]) if part)
                repositories.setdefault(name, {})
                return self.answer({"url": f"{address}/{name}", "name": name})
            if self.path == "/api/validate-yaml":
                return self.answer({"errors": [], "warnings": []})
            name, what = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/.*", self.path).groups()
            if what == "preupload":
                files = [
                    {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for file in json.loads(content)["files"]
                ]
                return self.answer({"files": files})
            for line in content.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    repositories[name][entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            commit = self.commit_of(name)
            return self.answer(
                {"success": True, "commitOid": commit, "commitUrl": f"{address}/{name}/commit/{commit}"}
            )

        def do_GET(self):
            self.give(shown=True)

        def do_HEAD(self):
            self.give(shown=False)

        def give(self, shown):
            asked.append((self.command, self.path))
            listing = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/.*", self.path)
            file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/([^?]+).*", self.path)
            name = (listing or file)[1] if listing or file else None
            if name not in repositories:
                return self.answer(
                    {"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"}, shown
                )
            commit = self.commit_of(name)
            if listing and listing[2] == "tree":
                files = repositories[name].items()
                return self.answer(
                    [
                        {"type": "file", "path": path, "oid": commit, "size": len(content)}
                        for path, content in files
                    ],
                    shown=shown,
                )
            if listing:
                return self.answer(
                    {
                        "id": name,
                        "sha": commit,
                        "siblings": [{"rfilename": path} for path in repositories[name]],
                    },
                    shown=shown,
                )
            if file[3] not in repositories[name]:
                return self.answer(
                    {"error": "Entry not found"},
                    404,
                    {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit},
                    shown,
                )
            content = repositories[name][file[3]]
            return self.answer(
                content,
                200,
                {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": commit},
                shown,
            )

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield address, repositories, asked
    finally:
        server.shutdown()
        server.server_close()
