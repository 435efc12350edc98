"""Pictures from text: the networks of FLUX.2-klein, seeds, schedule, and the pipeline around them."""
