import type { GuestClient } from "../../../src/node/client/index.ts";
import { Guest, type GuestOptions } from "../harness/guest.ts";
import type { Machine } from "../harness/machine.ts";

/** A guest, and its machine, which the cases of a suite share in turn. */
export class Stage {
  readonly #options: GuestOptions;
  #guest: Guest | undefined;
  #machine: Machine | undefined;

  constructor(options: GuestOptions) {
    this.#options = options;
  }

  /** Boots the machine. */
  async boot(): Promise<void> {
    this.#guest = await Guest.prepare(this.#options);
    this.#machine = await this.#guest.boot();
  }

  get guest(): Guest {
    if (this.#guest === undefined) throw new Error("there is no guest: see the first case");
    return this.#guest;
  }

  get machine(): Machine {
    if (this.#machine === undefined) throw new Error("there is no machine: see the cases before");
    return this.#machine;
  }

  /** A client with a connection of its own. */
  client(): GuestClient & Disposable {
    return this.guest.client(this.machine);
  }

  /** The same for an agent that may not be there yet. */
  reach(): Promise<GuestClient & Disposable> {
    return this.guest.reach(this.machine);
  }

  /** Switches the present machine off and replaces it. */
  async replaceMachine(start: () => Promise<Machine>): Promise<void> {
    await this.machine[Symbol.asyncDispose]();
    this.#machine = undefined;
    this.#machine = await start();
  }

  /** Cuts the machine off and boots another one from its disk. */
  async hardStop(): Promise<void> {
    this.#machine = await this.guest.reboot(this.takeMachine());
  }

  /** Passes the machine to the caller, who owns it from now on. */
  takeMachine(): Machine {
    const { machine } = this;
    this.#machine = undefined;
    return machine;
  }

  async end(): Promise<void> {
    await this.#machine?.[Symbol.asyncDispose]();
    this.#guest?.[Symbol.dispose]();
  }
}
