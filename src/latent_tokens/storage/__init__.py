"""Atomic files, .jsonl rows, and the versions that wrote them."""

from latent_tokens.storage.files import (
    Json as Json,
    atomic_directory as atomic_directory,
    half_written as half_written,
    json_bytes as json_bytes,
    restore_files as restore_files,
    sha256_of as sha256_of,
    short_hash as short_hash,
    write_atomic as write_atomic,
)
from latent_tokens.storage.rows import append_line as append_line, read_lines as read_lines
from latent_tokens.storage.versions import (
    FORMAT as FORMAT,
    package_version as package_version,
    provenance as provenance,
    read_description as read_description,
    source_commit as source_commit,
)
