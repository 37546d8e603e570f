"""Side inputs of a stage: answers Beam's views, which shape them, with the elements of a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apache_beam.coders import Coder

from headrace.dialects.beam.border import ElementBorder, Form, WindowKind
from headrace.dialects.beam.compat import NativeStateHandler
from headrace.dialects.beam.stagespecs import StageSpec
from headrace.model.bundlefns import SideContents


class SideHandler(NativeStateHandler):
    """Answers what a stage asks about its side inputs: elements of a window, and of multimaps the values of a key."""

    def __init__(self, spec: StageSpec, contents: Sequence[SideContents]) -> None:
        self._spec = spec
        self.see(contents)

    def see(self, contents: Sequence[SideContents]) -> None:
        """Replaces the contents of all side inputs."""
        components = self._spec.components
        self._views = {
            (side.transform, side.tag): _View(
                components.border(side.collection, Form.CODED), components.asked_coder(side.collection), each
            )
            for side, each in zip(self._spec.sides, contents, strict=True)
        }

    def blocking_get(self, state_key: Any, coder: Any) -> Any:
        kind = state_key.WhichOneof("type")
        asked = getattr(state_key, kind)
        view = self._views.get((asked.transform_id, asked.side_input_id))
        if view is None:  # parts of a splittable DoFn that make restrictions ask, but have no use for it
            return []
        match kind:
            case "iterable_side_input":
                return view.elements(asked.window)
            case "multimap_side_input":
                return view.by_key(asked.window).get(asked.key, (None, []))[1]
            case "multimap_keys_side_input":
                return [key for key, _ in view.by_key(asked.window).values()]
            case "multimap_keys_values_side_input":
                return list(view.by_key(asked.window).values())
        raise NotImplementedError(f"a view asks for {kind}, which is no side input that is known here")

    def forget(self) -> None:
        """Forgets what was read, as side inputs that are streams have other contents now."""
        for view in self._views.values():
            view.forget()


class _View:
    """One side input: decoded once for each window."""

    def __init__(self, border: ElementBorder, asked: Coder, contents: SideContents) -> None:
        self._border, self._asked, self._contents = border, asked, contents
        self.forget()

    def forget(self) -> None:
        self._elements: dict[bytes, list[Any]] = {}
        self._by_key: dict[bytes, dict[bytes, tuple[Any, list[Any]]]] = {}

    def elements(self, window: bytes) -> list[Any]:
        """Returns the elements of a window."""
        if window not in self._elements:
            self._elements[window] = list(map(self._border.decoded, self._cells(window)))
        return self._elements[window]

    def _cells(self, window: bytes) -> list[Any]:
        windows = self._border.windows
        if windows.kind is WindowKind.GLOBAL:
            return self._contents.elements(None)
        if windows.kind is WindowKind.INTERVAL:
            return self._contents.elements(windows.bounds(windows.decoded(window)[0]))
        return [cell for each, cell in self._contents.elements(None) if each == window]

    def by_key(self, window: bytes) -> Mapping[bytes, tuple[Any, list[Any]]]:
        """Returns the values of a window by the bytes of their keys."""
        if window not in self._by_key:
            encode = self._asked.key_coder().get_impl().encode_nested
            values: dict[bytes, tuple[Any, list[Any]]] = {}
            for key, value in self.elements(window):
                values.setdefault(encode(key), (key, []))[1].append(value)
            self._by_key[window] = values
        return self._by_key[window]
