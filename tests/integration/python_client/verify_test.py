"""dex_client.hf on the real platform: a model with a downloaded adapter beside it gives the served log-probabilities."""

import pytest

torch = pytest.importorskip("torch", reason="deploy/setup/peers installs torch and transformers")
transformers = pytest.importorskip("transformers")

from dex_client import DexError, hf  # noqa: E402


@pytest.fixture
def model(platform):
    return transformers.AutoModelForCausalLM.from_pretrained(platform.model, dtype=torch.float32).eval()


def test_an_attached_adapter_is_the_served_one(client, trained, model):
    job, folder = trained
    handle = hf.attach(model, folder)
    found = hf.verify(model, client)
    assert found.adapter == job.fine_tuned_model and found.tokens == 126 and found.agrees and found.largest < 1e-4
    assert found.mean <= found.largest and found.limit == 1e-3
    handle.scale = 0.5
    assert hf.verify(model, client, tokens=[[5, 6, 7, 8], [9, 10]]).agrees
    handle.detach()
    with pytest.raises(DexError, match="no adapter attached"):
        hf.verify(model, client)


def test_what_is_not_the_served_adapter_is_told(client, trained, model):
    job, folder = trained
    with hf.attach(model, folder) as handle:
        for branch in handle.branches.values():
            branch.strength.mul_(-20)
        assert not hf.verify(model, client).agrees
        other = client.adapters.import_folder(folder, base_model=job.proto.model, suffix="other")
        assert other.content_sha256 == handle.artefact.content_sha256  # the same bytes are the same adapter, under any id
        object.__setattr__(handle.artefact, "content_sha256", "0" * 64)
        with pytest.raises(DexError, match="they are not the same adapter"):
            hf.verify(model, client)
