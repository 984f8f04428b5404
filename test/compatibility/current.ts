import { globSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { createRegistry, type DescService, type Registry } from "@bufbuild/protobuf";

const GENERATED = join(import.meta.dirname, "../../src/shared/gen/svc/guest/v1alpha1");

/** The schema of this tree's agent and client. */
export async function currentSchema(): Promise<Registry> {
  const modules = globSync("*_pb.ts", { cwd: GENERATED }).map(
    (name) => import(pathToFileURL(join(GENERATED, name)).href) as Promise<Readonly<Record<string, unknown>>>,
  );
  return createRegistry(...(await Promise.all(modules)).flatMap((module) => Object.values(module)).filter(isService));
}

function isService(value: unknown): value is DescService {
  return typeof value === "object" && value !== null && "kind" in value && value.kind === "service";
}
