"""From what is asked for to engines: which options they get, and what is refused."""

from dataclasses import replace

import pytest

from systems.capabilities import MissingCapability
from systems.catalog import load_system
from systems.engines.vllm_server import VllmServer
from systems.engines.vllm_virtual import EngineUnavailable
from systems.provision.build import Asked, engines, sglang, vllm
from systems.provision.docker import ContainerOptions, ContainerServer

CPU = Asked(device="cpu")
ATLAS = load_system("atlas", knobs={"scheduler.beta": "3"})


def test_a_tiny_model_on_a_cpu(tmp_path):
    options = vllm(replace(CPU, limits={"kv_blocks": 64, "max_num_seqs": 4}), ATLAS, tmp_path)
    assert (options.kv_blocks, options.block_size, options.max_num_seqs) == (32, 32, 4)
    assert (options.model, options.name) == ((tmp_path / "model").resolve(), "tiny-llama")
    assert (options.scheduler, options.knobs["beta"], options.gpu) == ("atlas", 3, False)
    with pytest.raises(ValueError, match="must be a multiple of 2"):
        vllm(replace(CPU, limits={"kv_blocks": 33}), ATLAS, tmp_path)


def test_a_model_of_the_hub_on_a_gpu(tmp_path):
    asked = Asked(model="org/model", device="gpu", limits={"kv_blocks": 33}, tensor_parallel=2)
    options = vllm(asked, ATLAS, tmp_path)
    assert (options.kv_blocks, options.block_size, options.max_model_len) == (33, 16, 0)
    assert (options.model, options.name, options.tensor_parallel) == ("org/model", "org/model", 2)
    assert options.async_scheduling
    assert list(tmp_path.iterdir()) == []


def test_a_real_model_on_a_cpu_keeps_its_own_limits(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    options = vllm(replace(CPU, model=str(tmp_path), served="m"), ATLAS, tmp_path)
    assert (options.dtype, options.kv_blocks, options.max_model_len, options.name) == ("", 0, 0, "m")


def test_options_of_the_system_reach_the_engine(tmp_path):
    uncached = load_system("vllm-opt", knobs={"engine.prefix_cache": "false", "engine.preemption": "hold"})
    options = vllm(CPU, uncached, tmp_path)
    assert (options.prefix_cache, options.preemption) == (False, "hold")
    with pytest.raises(MissingCapability, match="chunked_prefill"):
        vllm(CPU, load_system("vllm-base"), tmp_path)


def test_sglang_takes_the_schedulers_it_has():
    asked = Asked("sglang", model="org/model", limits={"kv_blocks": 10, "max_model_len": 99})
    options = sglang(asked, load_system("lpm"))
    assert (options.schedule_policy, options.max_total_tokens, options.context_length) == ("lpm", 160, 99)
    with pytest.raises(ValueError, match="atlas has atlas"):
        sglang(asked, ATLAS)
    with pytest.raises(ValueError, match="a real model"):
        sglang(Asked("sglang"), load_system("lpm"))


def test_replicas_have_ids_folders_ports_and_gpus_of_their_own(tmp_path):
    asked = Asked(
        model="org/model", device="gpu", replicas=2, port=8000, tensor_parallel=2,
        container=ContainerOptions(gpus="0,1,2,3"),
    )  # fmt: skip
    first, second = engines(asked, ATLAS, tmp_path, "a.1")
    assert isinstance(second, VllmServer)
    assert (first.options.engine, second.options.engine) == (0, 1)
    assert (second.name, second.folder, second._port) == ("vllm1", tmp_path / "engine1", 8001)
    assert (first._extra, second._extra) == ({"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "2,3"})
    assert second.outlives
    first, second = engines(replace(asked, how="docker"), ATLAS, tmp_path, "a.1")
    assert isinstance(second, ContainerServer)
    assert (second.container.gpus, second.container.port, second.container.fleet) == ("2,3", 8001, "a.1")


def test_gpus_that_nobody_named(tmp_path):
    asked = Asked(model="org/model", how="docker")
    (only,) = engines(asked, ATLAS, tmp_path, "a.1")
    assert only.container.gpus == "all"
    with pytest.raises(ValueError, match="2 replicas of 1 GPU"):
        engines(replace(asked, replicas=2), ATLAS, tmp_path, "a.1")
    assert engines(replace(asked, device="cpu"), ATLAS, tmp_path, "a.1")[0].container.gpus == ""
    with pytest.raises(EngineUnavailable, match="a container has its own Python"):
        engines(replace(asked, python=tmp_path), ATLAS, tmp_path, "a.1")


@pytest.mark.parametrize("model", ["./x", "/x/y", "~/x", "x", "a/b/c", ""])
def test_a_model_that_is_none(tmp_path, model):
    with pytest.raises(ValueError, match="is neither a folder here nor"):
        vllm(replace(CPU, model=model or "-"), ATLAS, tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no config\.json"):
        vllm(replace(CPU, model=str(tmp_path / "empty")), ATLAS, tmp_path)
