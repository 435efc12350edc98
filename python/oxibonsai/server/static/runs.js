// What is on its way: answers, and calls of tools, of all conversations. Each goes on whatever the page
// shows; a conversation that has one is the same object for all, until its last one has ended.

export class Runs {
  byMessage = new Map(); // { conversation, message, abort, done, end, call } by the message's id

  // Notes that something runs for a message until `end()` is called; `stop` aborts it.
  begin(conversation, message, call = null) {
    const run = { conversation, message, call, abort: new AbortController() };
    run.done = new Promise((done) => (run.resolve = done));
    run.end = () => {
      this.byMessage.delete(message.id);
      run.resolve();
    };
    this.byMessage.set(message.id, run);
    return run;
  }

  get all() {
    return [...this.byMessage.values()];
  }

  of(message) {
    return this.byMessage.get(message.id);
  }

  // Those of a conversation, by its id.
  in(id) {
    return this.all.filter(({ conversation }) => conversation.id === id);
  }

  // The conversation of an id as the runs have it, or the given one where nothing of it runs.
  live(conversation) {
    return this.in(conversation.id)[0]?.conversation ?? conversation;
  }

  // Ends all of a conversation; each takes care of its message.
  async stop(id) {
    // What ends now may have begun the next: the result of a tool, the answer to it.
    for (let runs = this.in(id); runs.length > 0; runs = this.in(id)) {
      for (const { abort } of runs) abort.abort();
      await Promise.all(runs.map(({ done }) => done));
    }
  }
}
