"""client.models and client.presets."""

from __future__ import annotations

import builtins

from ..v1 import models_pb2 as pb
from ._link import Link


class Models:
    """The base models that the operator has listed."""

    def __init__(self, link: Link) -> None:
        self._link, self._stub = link, link.stubs.models

    async def list(self) -> builtins.list[pb.Model]:
        return builtins.list((await self._link.call(self._stub.ListModels, pb.ListModelsRequest())).models)

    async def get(self, name: str) -> pb.Model:
        return await self._link.call(self._stub.GetModel, pb.GetModelRequest(name=name))

    async def limits(self, model: str, *, method: str = "") -> pb.ModelLimits:
        """What a job of a method (empty: dex) on a base model may ask for, what it would publish, and the pools that it fits."""
        return await self._link.call(self._stub.GetModelLimits, pb.GetModelLimitsRequest(model=model, method=method))


class Presets:
    def __init__(self, link: Link) -> None:
        self._link, self._stub = link, link.stubs.models

    async def list(self) -> builtins.list[pb.Preset]:
        return builtins.list((await self._link.call(self._stub.ListPresets, pb.ListPresetsRequest())).presets)

    async def get(self, name: str, *, model: str = "") -> pb.Preset:
        """With `model`: the values that a job on it would start from."""
        return await self._link.call(self._stub.GetPreset, pb.GetPresetRequest(name=name, model=model))
