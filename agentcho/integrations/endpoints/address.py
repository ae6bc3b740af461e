"""The address of a server and the API key for it."""

from __future__ import annotations

import logging
import os
import re
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from agentcho.config import ModelConfig
from agentcho.errors import ConfigError

LOG = logging.getLogger(__name__)
OPENAI = "api.openai.com"
OPENAI_KEY = "OPENAI_API_KEY"
NO_KEY = "none"
"""Sent in place of a key where there is none; the OpenAI client rejects an empty one."""
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
"""The form of variable names that errors may quote. Any other value of key_env may be a key typed there by mistake."""
PORTS = {"http": 80, "https": 443}
LONGEST_KEY = 8192


class Address(NamedTuple):
    """The base URL of a server's API, its host and port. `secure`: traffic to it is encrypted."""

    url: str
    host: str
    port: int
    secure: bool

    @property
    def here(self) -> bool:
        """Whether it is this machine, judged by its name or address alone; no other name is resolved."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class ServerKey:
    """An API key that no representation shows."""

    def __init__(self, word: str) -> None:
        self.__word = word

    def reveal(self) -> str:
        """The key itself, for the request header that it belongs in."""
        return self.__word

    def out_of(self, words: str) -> str:
        """Return `words` with the key removed."""
        return words if self.__word == NO_KEY else words.replace(self.__word, "…")

    def __repr__(self) -> str:
        return "<key>"

    def __reduce__(self) -> str:
        raise TypeError("an API key cannot be pickled")


def address_of(config: ModelConfig, name: str) -> Address:
    """Return the address of a configured server. `ConfigError`: it is missing, or no key may be sent to it."""
    where = f"model {name}: base_url"
    if config.base_url is None:
        raise ConfigError(f"{where} is missing; give the address of the server's API, such as http://127.0.0.1:8000/v1")
    try:
        parts = urlsplit(config.base_url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise ConfigError(f"{where} is not a URL: {error}") from None
    if parts.scheme not in PORTS or not host or any(char.isspace() or not char.isprintable() for char in parts.netloc):
        raise ConfigError(f"{where} is not the URL of a server; give one such as http://127.0.0.1:8000/v1")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ConfigError(
            f"{where} has a user, a password, a query or a fragment; remove it, and give keys by key_env or key_file"
        )
    path = parts.path.rstrip("/") or "/v1"
    url = f"{parts.scheme}://{parts.netloc.lower()}{path}"
    return Address(url, host, port or PORTS[parts.scheme], parts.scheme == "https")


def key_of(config: ModelConfig, name: str, address: Address) -> ServerKey:
    """Return the key for a server, from where the configuration says. If it says nothing, OpenAI's own server gets
    OPENAI_API_KEY and this machine gets no key. Any other server is a `ConfigError`: a key is never sent to a server
    that it is not meant for."""
    if config.key_file is not None and config.key_env is not None:
        raise ConfigError(f"model {name}: key_file and key_env contradict each other; give one of them")
    if config.key_file is not None:
        return _usable(_from_file(Path(config.key_file).expanduser(), name), name, address)
    variable = config.key_env or (OPENAI_KEY if address.host == OPENAI else None)
    if variable is not None:
        return _usable(_from_environment(variable, name), name, address)
    if not address.here:
        raise ConfigError(
            f"model {name}: {address.host} needs a key; give the environment variable (key_env) or the "
            "file (key_file) that holds it"
        )
    return ServerKey(NO_KEY)


def _from_environment(variable: str, name: str) -> str:
    if found := os.environ.get(variable, "").strip():
        return found
    if VARIABLE.fullmatch(variable):
        raise ConfigError(
            f"model {name}: the environment variable {variable}, which should hold its key, is not set; set it"
        )
    raise ConfigError(
        f"model {name}: key_env is not the name of an environment variable that is set; give such a "
        "name, not the key itself"
    )


def _from_file(path: Path, name: str) -> str:
    try:
        mode, word = path.stat().st_mode, path.read_bytes()[: LONGEST_KEY + 1].decode("utf-8").strip()
    except OSError as error:
        raise ConfigError(
            f"model {name}: its key_file cannot be read ({error.strerror}); give a file that holds the "
            "key, not the key itself"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(
            f"model {name}: key_file {path} is not UTF-8 text; give a file that holds the key and nothing else"
        ) from None
    if os.name == "posix" and mode & 0o077:
        LOG.warning("model %s: users other than its owner may read the key in %s; run chmod 600 on it", name, path)
    return word


def _usable(word: str, name: str, address: Address) -> ServerKey:
    """Wrap a key. `ConfigError`, which does not quote it: no header can hold that key."""
    if not word or len(word) > LONGEST_KEY or not all("!" <= char <= "~" for char in word):
        raise ConfigError(
            f"model {name}: its key is empty, too long, or contains characters other than printable ASCII "
            "without spaces"
        )
    if not address.secure and not address.here:
        LOG.warning("model %s: its key is sent to %s unencrypted; give an https address", name, address.host)
    return ServerKey(word)
