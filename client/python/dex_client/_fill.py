"""Messages from plain Python values, with errors that name the field, the value and what would be right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from ._errors import DexError

M = TypeVar("M", bound=Message)


def refuse(path: str, what: str, reason: str = "INVALID_FIELD") -> DexError:
    return DexError(f"{path} {what}", reason=reason, category="USER", code="INVALID_ARGUMENT", param=path)


def fill(message: M, values: Mapping[str, Any], path: str = "") -> M:
    """Sets the fields of `message` by their proto names; None leaves one unset. Nested messages are mappings or messages,
    enums their numbers or names, long ("FORM_PAPER") or short ("paper", "kvo+dex"). Raises DexError UNKNOWN_FIELD or
    INVALID_FIELD. Returns the message."""
    known = message.DESCRIPTOR.fields_by_name
    for name, value in values.items():
        where = f"{path}.{name}" if path else name
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise refuse(where, f"is no field of {message.DESCRIPTOR.name}; " +
                         (f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"), "UNKNOWN_FIELD")
        if value is not None:
            _set(message, known[name], value, where)
    return message


def _set(message: Message, field: Any, value: Any, path: str) -> None:
    target = getattr(message, field.name)
    try:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            target.update(value)
        elif field.is_repeated:
            if isinstance(value, (str, bytes, Mapping, Message)):
                raise TypeError("a list is needed")
            if field.message_type is not None:
                for index, item in enumerate(value):
                    _merge(target.add(), item, f"{path}[{index}]")
            else:
                target.extend(_scalar(field, item, path) for item in value)
        elif field.message_type is not None:
            _merge(target, value, path)
        else:
            setattr(message, field.name, _scalar(field, value, path))
    except (TypeError, ValueError, AttributeError) as error:
        raise refuse(path, f"can't be {value!r:.80}: {error}") from error


def _merge(target: Message, value: Any, path: str) -> None:
    target.SetInParent()  # an empty one counts too: method full has no fields
    if isinstance(value, Message):
        target.CopyFrom(value)
    elif isinstance(value, Mapping):
        fill(target, value, path)
    else:
        raise TypeError(f"a mapping or a {target.DESCRIPTOR.name} is needed")


def _scalar(field: Any, value: Any, path: str) -> Any:
    if field.type != FieldDescriptor.TYPE_ENUM or not isinstance(value, str):
        return value
    return enum_number(field.enum_type, value, path)


def enum_number(kind: Any, text: str, path: str) -> int:
    """The value of an enum by its long or short name, in any case; +, - and blanks count as _."""
    prefix = kind.values[0].name.removesuffix("UNSPECIFIED")
    wanted = re.sub(r"[^A-Za-z0-9]+", "_", text).upper()
    for name in (wanted, prefix + wanted):
        if name in kind.values_by_name:
            return int(kind.values_by_name[name].number)
    names = ", ".join(value.name.removeprefix(prefix).lower() for value in kind.values[1:])
    raise refuse(path, f"must be one of {names}, got {text!r:.80}")


def short(kind: Any, number: int) -> str:
    """The short name of an enum's value, "RUNNING"; a number that this client does not know yet as it is."""
    value = kind.values_by_number.get(number)
    return str(number) if value is None else value.name.removeprefix(kind.values[0].name.removesuffix("UNSPECIFIED"))
