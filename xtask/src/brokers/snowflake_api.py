#!/usr/bin/env python3
"""An emulation of Snowflake's SQL API v2 (POST /api/v2/statements) on this machine: fakesnow over a file, without
authentication, one statement at a time. Usage: snowflake_api.py PORT FOLDER"""

import json
import re
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fakesnow.instance import FakeSnow

port, folder = int(sys.argv[1]), sys.argv[2]
connection = FakeSnow(db_path=folder).connect("DB", "S")
lock = threading.Lock()
for statement in ("create database if not exists DB", "create schema if not exists DB.S", "use schema DB.S"):
    connection.cursor().execute(statement)


class Statements(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        binds = sorted((body.get("bindings") or {}).items(), key=lambda it: int(it[0]))
        values = [bind["value"] for _, bind in binds]
        statement = body["statement"]
        if values:
            statement = re.sub(r"\?", "%s", statement.replace("%", "%%"))
        try:
            with lock:
                cursor = connection.cursor()
                cursor.execute(statement, values or None)
                rows = cursor.fetchall()
        except Exception as error:  # what the database refuses is an answer
            return self.answer(422, {"code": "001003", "message": str(error)[:500]})
        data = [[None if value is None else str(value) for value in row] for row in rows]
        self.answer(200, {
            "statementHandle": str(uuid.uuid4()),
            "resultSetMetaData": {"numRows": len(rows), "partitionInfo": [{"rowCount": len(rows)}]},
            "data": data,
        })

    def answer(self, status, value):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", port), Statements).serve_forever()
