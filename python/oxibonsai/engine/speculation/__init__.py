"""Proposals for the next tokens, which the model checks in one step.

A proposal never decides anything: at each of its positions the sequence's own sampler draws from the
model's logits, with the random number of that position, and goes on as long as draft and draw agree.
So a text is the same with and without speculation, greedy or sampled; only its speed differs.
"""
