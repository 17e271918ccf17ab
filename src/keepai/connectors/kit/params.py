"""Kinds of params. Connectors use these types, and the host brings the values of a script into one normal form.

Rules judge the normal form, people see it, and Keep sends it. A spelling that could be read in two ways is refused
here, before a rule judges it.

    class SendMail(TypedDict):
        to: AddressList
        cc: NotRequired[AddressList | None]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

from ...model.errors import Rejected
from ...model.permissions import ParamKind
from ..egress.url_rules import PORTS, origin_of, parse
from ..files.paths import parts_of
from . import addresses

_KIND = "keep-kind"  # the key of the kind in the JSON schema of a param


@dataclass(frozen=True)
class Normal:
    """Marks a type with its kind and with the function that makes the normal form of a value."""

    kind: ParamKind
    normal: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {**handler(schema), _KIND: self.kind.value}

    def _checked(self, value: Any) -> Any:
        try:
            return self.normal(value)
        except Rejected as error:
            raise ValueError(error.message.removeprefix(": ")) from None


def _address_list(value: str | list[str]) -> list[str]:
    return [address.text for address in addresses.read("", value)]


_PERCENT = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def normal_url(value: str) -> str:
    """Scheme and host in lower case, no default port, each escape in one spelling."""
    parsed = parse(value)
    scheme, host, port = origin_of(parsed)
    place = f"[{host}]" if ":" in host else host
    path = _PERCENT.sub(_escape, parsed.raw_path.decode("ascii"))
    return f"{scheme}://{place}{'' if port == PORTS[scheme] else f':{port}'}{path}"


def _escape(match: re.Match[str]) -> str:
    character = chr(int(match[1], 16))
    return character if character in _UNRESERVED else quote(bytes([ord(character)]))


#: One or more e-mail addresses, as one string with commas or as a list.
AddressList: TypeAlias = Annotated[str | list[str], Normal(ParamKind.ADDRESSES, _address_list)]

#: E-mail addresses as a list.
Addresses: TypeAlias = Annotated[list[str], Normal(ParamKind.ADDRESSES, _address_list)]

#: A URL that can be read in one way only.
Url: TypeAlias = Annotated[str, Normal(ParamKind.URL, normal_url)]

#: A file below a folder: no empty parts, no dots.
FilePath: TypeAlias = Annotated[str, Normal(ParamKind.PATH, lambda path: "/".join(parts_of(path)))]


def kinds_in(schema: Mapping[str, Any]) -> dict[str, ParamKind]:
    """Param → its kind. Plain text params are left out."""
    kinds = {name: _kind_in(param_schema) for name, param_schema in schema.get("properties", {}).items()}
    return {name: ParamKind(kind) for name, kind in kinds.items() if kind}


def _kind_in(schema: Mapping[str, Any]) -> str | None:
    if _KIND in schema:
        return str(schema[_KIND])
    return next((kind for branch in schema.get("anyOf", ()) if (kind := _kind_in(branch))), None)
