"""Pictures of prompts."""

from oxibonsai.images.pipeline import ImagePipeline, ImagePipelineOutput

__all__ = ["ImagePipeline", "ImagePipelineOutput"]
