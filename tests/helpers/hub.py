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

        def answer(self, content, status=200, **headers):
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def commit_of(self, name):
            return hashlib.sha1(repr(sorted(repositories[name].items())).encode()).hexdigest()

        def do_POST(self):
            asked.append(("POST", self.path))
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/api/repos/create":
                created = json.loads(content)
                name = f"{created['organization']}/{created['name']}"
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

        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            asked.append((self.command, self.path))
            listing = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/.*", self.path)
            file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/([^?]+).*", self.path)
            name = (listing or file)[1] if listing or file else None
            if name not in repositories:
                return self.answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
            commit, files = self.commit_of(name), repositories[name]
            if listing and listing[2] == "tree":
                entry = {"type": "file", "oid": commit}
                return self.answer([{**entry, "path": path, "size": len(files[path])} for path in files])
            if listing:
                siblings = [{"rfilename": path} for path in files]
                return self.answer({"id": name, "sha": commit, "siblings": siblings})
            if file[3] not in files:
                codes = {"X_Error_Code": "EntryNotFound", "X_Repo_Commit": commit}
                return self.answer({"error": "Entry not found"}, 404, **codes)
            content = files[file[3]]
            etag = f'"{hashlib.sha256(content).hexdigest()}"'
            return self.answer(content, ETag=etag, X_Repo_Commit=commit)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield address, repositories, asked
    finally:
        server.shutdown()
        server.server_close()
