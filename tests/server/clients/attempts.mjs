// Runs the cases of a client, each on its own, and reports them in one JSON object.

// Each case plain and as a stream: pairs of a name and what is to be done.
export function* plainAndStreamed(cases) {
  for (const [name, run] of Object.entries(cases)) {
    yield [name, () => run(false)];
    yield [`${name} as a stream`, () => run(true)];
  }
}

// Prints how many attempts passed, and what went wrong with each that failed.
export async function report(client, attempts) {
  const failures = {};
  let passed = 0;
  for (const [name, run] of attempts)
    try {
      await run();
      passed += 1;
    } catch (error) {
      failures[name] = String(error.cause?.message ?? error.stack).slice(0, 1500);
    }
  console.log(JSON.stringify({ client, passed, failures }));
}
