import { networkInterfaces } from "node:os";
import { type ChannelOptions, experimental, Metadata, status } from "@grpc/grpc-js";
import { DEFAULT_SERVER_NAME } from "./link.ts";

/** Scheme of grpc-js targets that have an IPv6 address with a zone (RFC 4007), such as `zoned:[fe80::1%eth0]:7071`. */
const SCHEME = "zoned";
const TARGET = /^\[(.+%.+)\]:(\d+)$/;

/**
 * Resolves an IPv6 address with a zone, such as `[fe80::1%eth0]:7071`. The result is the address itself. The default
 * resolver of grpc-js 1.14 cannot be used, because it parses the address as a URL, and URLs cannot contain a zone.
 */
class ZonedResolver implements experimental.Resolver {
  readonly #listener: experimental.ResolverListener;
  readonly #path: string;

  constructor({ path }: { readonly path: string }, listener: experimental.ResolverListener, _options: ChannelOptions) {
    this.#path = path;
    this.#listener = listener;
  }

  /** Authority (the `:authority` header) of calls, unless the channel has the option `grpc.default_authority`. */
  static getDefaultAuthority(): string {
    return DEFAULT_SERVER_NAME;
  }

  updateResolution(): void {
    const [, host = "", port = ""] = TARGET.exec(this.#path) ?? [];
    const zone = host.slice(host.indexOf("%") + 1);
    const isKnown = /^\d+$/.test(zone) || zone in networkInterfaces();
    const addresses = [{ host, port: Number(port) }];
    // Without this check, Node would connect to the address without its zone (uv_ip6_addr).
    const details = `Name resolution failed for the zone "${zone}": no network interface that is up has this name`;
    const resolved = isKnown
      ? experimental.statusOrFromValue([{ addresses }])
      : experimental.statusOrFromError<[]>({ code: status.UNAVAILABLE, details, metadata: new Metadata() });
    queueMicrotask(() => this.#listener(resolved, {}, null, ""));
  }

  destroy(): void {
    // grpc-js calls this when it no longer needs the resolver. There is nothing to release.
  }
}

/** Converts `HOST:PORT` to the form that grpc-js expects. */
export function targetOf(address: string): string {
  if (!TARGET.test(address)) return address;
  experimental.registerResolver(SCHEME, ZonedResolver);
  return `${SCHEME}:${address}`;
}
