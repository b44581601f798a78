"""A local hub: a server in this process that answers huggingface_hub's requests to upload and download."""

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


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
                self.wfile.write(body)

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
                code = {"X-Error-Code": "RepoNotFound"}
                return self.answer({"error": "Repository not found"}, 404, code, shown)
            commit, files = self.commit_of(name), repositories[name]
            if listing and listing[2] == "tree":
                entry = {"type": "file", "oid": commit}
                entries = [{**entry, "path": path, "size": len(files[path])} for path in files]
                return self.answer(entries, shown=shown)
            if listing:
                siblings = [{"rfilename": path} for path in files]
                return self.answer({"id": name, "sha": commit, "siblings": siblings}, shown=shown)
            headers = {"X-Repo-Commit": commit}
            if file[3] not in files:
                code = {"X-Error-Code": "EntryNotFound"}
                return self.answer({"error": "Entry not found"}, 404, headers | code, shown)
            content = files[file[3]]
            etag = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
            return self.answer(content, 200, headers | etag, shown)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield address, repositories, asked
    finally:
        server.shutdown()
        server.server_close()
