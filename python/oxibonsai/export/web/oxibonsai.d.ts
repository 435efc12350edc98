export interface LoadOptions {
  /** Tokens of a text, prompt included; left out: the trained context, but at most 2048. */
  context?: number;
  onProgress?: (bytes: number, all: number) => void;
  signal?: AbortSignal;
}

/** What is left out is as `oxibonsai run` has it for the model. */
export interface Sampling {
  /** 0: the most likely token each time. */
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
  repetitionPenalty: number;
  repetitionWindow: number;
  presencePenalty: number;
  frequencyPenalty: number;
}

export interface GenerateOptions extends Partial<Sampling> {
  maxTokens?: number;
  /** 0 to 2^64 - 1; the same seed gives the text of `oxibonsai run --raw --seed`. */
  seed?: number | bigint | string;
  signal?: AbortSignal;
  /** Called with each token's id. */
  onToken?: (id: number) => void;
}

export interface ChatOptions extends GenerateOptions {
  /** Variables that the chat template reads, such as `{ enable_thinking: false }`. */
  templateVariables?: Record<string, unknown>;
}

export interface Message {
  role: "system" | "user" | "assistant";
  content: string;
}

export class Model {
  readonly name: string;
  readonly context: number;
  /** Whether it has a chat template. */
  readonly chats: boolean;
  /** The texts around the reasoning that an answer may begin with; they are part of the answer's text. */
  readonly reasoning: [string, string] | null;
  readonly sampling: Readonly<Sampling>;
  encode(text: string): number[];
  decode(ids: number[]): string;
  /** Of the token after these, of a sequence of their own. */
  logits(ids: number[]): Float32Array;
  /** The text that the answer to a conversation follows. */
  prompt(messages: Message[], templateVariables?: Record<string, unknown>): string;
  /** The answer to a conversation, in pieces: a text of `oxibonsai run --seed`. */
  chat(messages: Message[], options?: ChatOptions): AsyncGenerator<string, void, void>;
  /** The continuation of a text, in pieces. */
  generate(prompt: string, options?: GenerateOptions): AsyncGenerator<string, void, void>;
  /** Lets go of the model; its memory is free when nothing refers to this object. */
  close(): void;
}

/** Opens a folder that `oxibonsai export-web` has written; left out: the one that this module lies in. */
export function load(folder?: string | URL, options?: LoadOptions): Promise<Model>;
