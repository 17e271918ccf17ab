/** What is stored and sent: JSON, nothing else. */
type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** A list that a connector returned, with extra members such as `lastCursor`. */
interface Page<T> extends Array<T> { [field: string]: any }

/** An event of a topic, as `peek` and `getByIds` give it. */
interface TopicEvent { topic: string; messageId: string; payload: any }

/** What `peek` gives. `cursor` is there when more events wait. */
interface TopicPage extends Array<TopicEvent> { cursor?: string }

/** What `prepare` returns. Empty reservations mean: nothing to do now. */
interface PrepareResult {
  reservations: { topic: string; ids: string[] }[];
  data: any;
  /** What people see before and after the mutation. */
  ui?: { title: string };
  /** When to look again, as an ISO time. */
  wakeAt?: string;
}

/** What `mutate` and `next` are given: what `prepare` returned, with the reserved events as they were pinned. */
interface Prepared extends PrepareResult {
  /** In the order of the reservations. A large payload costs nothing until it is read. */
  events: TopicEvent[];
}

/** What became of the mutation, as `next` is told. */
type MutationResult = { status: "applied"; result: any } | { status: "none" } | { status: "skipped" };

type Schedule = { interval: string } | { cron: string; tz?: string };

interface Producer {
  publishes: string[];
  schedule: Schedule;
  /** What it returns is its state the next time; returning nothing keeps the old one. */
  handler(ctx: ProducerContext, state: any): any;
}

interface Consumer {
  subscribe: string[];
  publishes?: string[];
  prepare(ctx: PrepareContext, state: any): PrepareResult | Promise<PrepareResult>;
  /** At most one call, which ends it: nothing after the call runs. */
  mutate?(ctx: MutateContext, prepared: Prepared): any;
  next?(ctx: NextContext, prepared: Prepared, mutationResult: MutationResult): any;
}

interface Routine {
  schedule: Schedule;
  handler(ctx: RoutineContext, state: any): any;
}

interface Workflow {
  name: string;
  topics?: { [topic: string]: {} };
  producers?: { [name: string]: Producer };
  consumers?: { [name: string]: Consumer };
  routines?: { [name: string]: Routine };
}

declare const Keep: {
  workflow(workflow: Workflow): Workflow;
  consumer(consumer: Consumer): Consumer;
};

/** In `mutate` a mutation is the last thing that happens: its result goes to `next`. */
type Terminal<M> = { [K in keyof M]: M[K] extends (params: infer P) => any ? (params: P) => Promise<never> : never };

/** In an item, a subkey tells two mutations of the same identity apart. It is not sent. */
type InItem<M> = {
  [K in keyof M]: M[K] extends (params: infer P) => infer R ? (params: P & { subkey?: string }) => R : never
};
