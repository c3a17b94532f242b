"""SmolLM2-135M-Instruct as a folder that vLLM serves, from a package of PyPI; docs/genuine-model.md."""
