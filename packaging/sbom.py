"""Write what a wheel consists of as a CycloneDX file (PEP 770)."""

from __future__ import annotations

from email.parser import Parser
from importlib.metadata import version
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

# Linked into the extension module: the C++ library and the run-time that Zig brings, the bindings'
# headers, the codebooks of the IQ types.
LINKED = ("ziglang", "pybind11", "gguf")


def write_sbom(info: Path) -> None:
    """Write ``sboms/oxibonsai.cdx.json`` into a wheel's ``.dist-info`` folder."""
    metadata = Parser().parsestr((info / "METADATA").read_text(encoding="utf-8"))
    package = Component(
        name=metadata["Name"],
        version=metadata["Version"],
        type=ComponentType.LIBRARY,
        purl=PackageURL("pypi", name=metadata["Name"], version=metadata["Version"]),
    )
    bom = Bom()
    bom.metadata.component = package
    linked = [_component(name, version(name)) for name in LINKED]
    needed = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    required = [_component(r.name, None) for r in needed if "extra" not in str(r.marker or "")]
    bom.components.update([*linked, *required])
    bom.register_dependency(package, [*linked, *required])
    (info / "sboms").mkdir()
    (info / "sboms" / "oxibonsai.cdx.json").write_text(
        JsonV1Dot6(bom).output_as_string(indent=1), encoding="utf-8"
    )


def _component(name: str, exact: str | None) -> Component:
    """Return a package of PyPI; a requirement has no exact version."""
    purl = PackageURL("pypi", name=name, version=exact)
    return Component(name=name, version=exact, type=ComponentType.LIBRARY, purl=purl, bom_ref=name)
