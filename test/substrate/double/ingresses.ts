import type { Hypeman } from "@onkernel/hypeman";
import { Mutex } from "../../../src/agent/domain/index.ts";
import { messageOf } from "../../../src/shared/errors.ts";
import { ApiFailure } from "./failure.ts";

import { newId } from "./instance.ts";
import { listenPortOf, type Proxy, type Rule } from "./proxy.ts";
import { found, hasTags, Records, type Tags } from "./records.ts";

/** An ingress on disk, in the API's form. */
export type IngressRecord = Readonly<Hypeman.Ingress>;

/** What ingresses need to know of instances, by name or id: their name. @throws ApiFailure */
type NameOf = (reference: string) => string;

/**
 * The ingresses of a daemon, with the rules of hypeman 8853445. They name an instance and outlive it: then they route
 * to the next one of that name.
 */
export class Ingresses {
  readonly #records: Records<IngressRecord>;
  readonly #nameOf: NameOf;
  /** Undefined: it does not run, and a 201 proves nothing (lib/ingress/manager.go:370; the contract's deviation 2). */
  readonly #proxy: Proxy | undefined;
  readonly #turn = new Mutex();

  constructor(directory: string, nameOf: NameOf, proxy: Proxy | undefined) {
    this.#records = new Records(directory);
    this.#nameOf = nameOf;
    this.#proxy = proxy;
  }

  list(tags: Tags): IngressRecord[] {
    return this.#records.all().filter((ingress) => hasTags(ingress.tags, tags));
  }

  /** By id or name. @throws ApiFailure */
  get(reference: string): IngressRecord {
    return found(this.#records, reference);
  }

  /** lib/ingress/manager.go:255-380; the answers: cmd/api/api/ingress.go:51-98. @throws ApiFailure */
  create({ name, rules, tags = {} }: Hypeman.IngressCreateParams): Promise<IngressRecord> {
    return this.#turn.run(async () => {
      const all = this.#records.all();
      const resolved = rules.map((rule) => this.#resolved(rule));
      for (const rule of resolved) requireFree(rule, all);
      const ingress = { id: newId(), name, tags, rules: resolved, created_at: new Date().toISOString() };
      try {
        await this.#proxy?.load(rulesOf([...all, ingress]));
      } catch (error) {
        // Also where only a port is taken (manager.go:372 hides that cause).
        const message = `config validation failed: ${messageOf(error)}`;
        throw new ApiFailure(400, "config_validation_failed", message, { cause: error });
      }
      this.#records.begin(ingress.id);
      return this.#records.save(ingress);
    });
  }

  /** The record goes first (manager.go:494-518). */
  delete({ id }: IngressRecord): Promise<void> {
    return this.#turn.run(async () => {
      this.#records.remove(id);
      await this.#proxy?.load(rulesOf(this.#records.all()));
    });
  }

  /** A rule as it is kept: by the instance's name, whatever it was given by (manager.go:312-325). */
  #resolved({ match, target }: Hypeman.IngressRule): Hypeman.IngressRule {
    const told = { ...match, port: listenPortOf({ match, target }) };
    return { match: told, target: { ...target, instance: this.#nameOf(target.instance) } };
  }
}

/** One rule for each hostname and port, compared letter by letter (manager.go:334-344). @throws ApiFailure */
function requireFree(rule: Rule, all: readonly IngressRecord[]): void {
  const { hostname } = rule.match;
  const isSame = (other: Rule): boolean =>
    other.match.hostname === hostname && listenPortOf(other) === listenPortOf(rule);
  const other = all.find(({ rules }) => rules.some(isSame));
  if (other === undefined) return;
  const message = `hostname already in use by another ingress: hostname "${hostname}" on port ${listenPortOf(rule)} is already used by ingress "${other.name}"`;
  throw new ApiFailure(409, "hostname_in_use", message);
}

function rulesOf(ingresses: readonly IngressRecord[]): Rule[] {
  return ingresses.flatMap(({ rules }) => rules);
}
