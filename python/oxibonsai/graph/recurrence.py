"""The builder's methods for layers with recurrent state, each of which has a slot of its own."""

from __future__ import annotations

from oxibonsai.graph.op_methods import OpMethods, Value, Vector


class RecurrenceMethods(OpMethods):
    """Ops that read a sequence's tokens one after the other, and keep a state between them."""

    def conv1d(
        self, x: Value, weight: Vector, bias: Vector | None = None, *, silu: bool = False
    ) -> Value:
        """Return causal depthwise convolution over a sequence's tokens.

        Args:
            x: [tokens, channels].
            weight: float32 [channels, taps], the earliest token's tap first.
            bias: [channels].
            silu: Whether silu of the result is taken.
        """
        channels, taps = weight.shape
        slot = self.graph.add_slot(channels * (taps - 1))
        return self.graph.conv1d(x, weight, bias, taps, slot, silu)

    def gated_delta(
        self,
        qkv: Value,
        alpha: Value,
        beta: Value,
        *,
        dt_bias: Vector,
        decay: Vector,
        key_heads: int,
        key_dim: int,
        value_dim: int,
        tiled: bool,
        eps: float,
    ) -> Value:
        """Return the gated delta rule over a sequence's tokens: [tokens, value_heads * value_dim].

        The state S of a value head decays by ``exp(decay * softplus(alpha + dt_bias))``, then takes
        ``k (sigmoid(beta) * (v - S^T k))^T``; the result is ``S^T q``.

        Args:
            qkv: [tokens, 2 * key_heads * key_dim + value_heads * value_dim]; each head's q and k
                are divided by ``sqrt(their sum of squares + eps)``, q by ``sqrt(key_dim)`` too.
            alpha: [tokens, value_heads], of the decay.
            beta: [tokens, value_heads], of what is written.
            dt_bias: float32 [value_heads].
            decay: float32 [value_heads], negative.
            key_heads: Heads of q and of k; a divisor of the value heads.
            key_dim: Of a head of q or k.
            value_dim: Of a head of v.
            tiled: Value head h reads key head ``h % key_heads``; else heads that share one are
                neighbours.
            eps: Of the norms of q and k.
        """
        slot = self.graph.add_slot(self.graph.scan_floats(alpha.cols, key_dim, value_dim))
        return self.graph.gated_delta(
            qkv, alpha, beta, dt_bias, decay, key_heads, key_dim, value_dim, tiled, eps, slot
        )

    def mamba2_scan(
        self,
        xbc: Value,
        time_step: Value,
        *,
        dt_bias: Vector,
        decay: Vector,
        skip: Vector,
        groups: int,
        state_dim: int,
    ) -> Value:
        """Return the scan of Mamba 2 over a sequence's tokens: [tokens, heads * head_dim].

        With ``dt = softplus(time_step + dt_bias)`` the state S of a head decays by
        ``exp(decay * dt)``, then takes ``b (dt * x)^T``; the result is ``S^T c + skip * x``.

        Args:
            xbc: [tokens, heads * head_dim + 2 * groups * state_dim]: x, then b and c of each group.
            time_step: [tokens, heads].
            dt_bias: float32 [heads].
            decay: float32 [heads], negative.
            skip: float32 [heads].
            groups: Heads of a group are neighbours.
            state_dim: Of a group's b and c.
        """
        heads = time_step.cols
        head_dim = (xbc.cols - 2 * groups * state_dim) // heads
        slot = self.graph.add_slot(self.graph.scan_floats(heads, state_dim, head_dim))
        return self.graph.mamba2_scan(xbc, time_step, dt_bias, decay, skip, groups, state_dim, slot)

    def mamba_scan(
        self,
        x: Value,
        time_step: Value,
        b: Value,
        c: Value,
        *,
        dt_bias: Vector,
        decay: Vector,
        skip: Vector,
    ) -> Value:
        """Return the selective scan of Mamba 1 over a sequence's tokens: [tokens, channels].

        With ``dt = softplus(time_step + dt_bias)`` the state h of a channel becomes
        ``exp(decay * dt) * h + b * (dt * x)``; the result is ``sum(h * c) + skip * x``.

        Args:
            x: [tokens, channels].
            time_step: As x.
            b: [tokens, state_dim].
            c: As b.
            dt_bias: float32 [channels].
            decay: float32 [channels, state_dim], negative.
            skip: float32 [channels].
        """
        slot = self.graph.add_slot(self.graph.scan_floats(1, b.cols, x.cols))
        return self.graph.mamba_scan(x, time_step, b, c, dt_bias, decay, skip, slot)

    def wkv7_scan(
        self, r: Value, w: Value, k: Value, v: Value, kk: Value, a: Value, *, head_dim: int
    ) -> Value:
        """Return the scan of RWKV-7 over a sequence's tokens: [tokens, heads * head_dim].

        The state S of a head becomes ``decay S - (kk * a) (S^T kk)^T + k v^T``, where each row of S
        has a factor, ``decay = exp(-e^-0.5 * sigmoid(w))``; the result is ``S^T r``.

        Args:
            r: Receptance, [tokens, heads * head_dim].
            w: As r, of the decay.
            k: As r, the key.
            v: As r, the value.
            kk: As r, the removal key, of length 1 in each head.
            a: As r, the in-context learning rate.
            head_dim: Of a head.
        """
        slot = self.graph.add_slot(self.graph.scan_floats(r.cols // head_dim, head_dim, head_dim))
        return self.graph.wkv7_scan(r, w, k, v, kk, a, head_dim, slot)
