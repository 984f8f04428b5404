import { type DescMessage, fromBinary, isMessage, type Message, type Registry, toBinary } from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import * as grpc from "@grpc/grpc-js";
import { testFolder } from "../fixtures/files.ts";
import { listener } from "../fixtures/listeners.ts";

/** Fields that no release has. */
const FUTURE_FIELDS = [
  { no: 902, wireType: WireType.Varint, data: new BinaryWriter().uint32(7).finish() },
  { no: 900, wireType: WireType.LengthDelimited, data: new BinaryWriter().string("of the future").finish() },
  { no: 901, wireType: WireType.Bit64, data: new Uint8Array(8).fill(9) },
] as const;

/** A relay between a client and an agent that makes each look newer to the other. */
export interface FutureRelay extends AsyncDisposable {
  readonly socketPath: string;
  /** Methods that were called through it, such as "GuestAgent/Health". */
  readonly called: ReadonlySet<string>;
}

/**
 * Listens on a unix socket and passes every call on to another one. Adds fields that no release knows to every message,
 * in both directions, and to every message within.
 */
export async function startFutureRelay(agentSocket: string, schema: Registry): Promise<FutureRelay> {
  const folder = await testFolder();
  const socketPath = folder.at("relay.sock");
  const called = new Set<string>();
  const server = new grpc.Server();
  for (const service of Array.from(schema).filter((type) => type.kind === "service")) {
    const definition: Record<string, grpc.MethodDefinition<Buffer, Buffer>> = {};
    const handlers: Record<string, grpc.handleBidiStreamingCall<Buffer, Buffer>> = {};
    for (const method of service.methods) {
      const path = `/${service.typeName}/${method.name}`;
      // On the wire every call has two streams.
      definition[method.name] = { path, requestStream: true, responseStream: true, ...AS_IS };
      handlers[method.name] = (call) => {
        called.add(`${service.name}/${method.name}`);
        // A connection for each call: the duties end all others, and a hook may follow at once.
        const options = { "grpc.use_local_subchannel_pool": 1 };
        const upstream = new grpc.Client(`unix:${agentSocket}`, grpc.credentials.createInsecure(), options);
        const onward = upstream.makeBidiStreamRequest(path, same, same, call.metadata);
        onward.on("status", () => upstream.close());
        pass(call, onward, method.input, method.output);
      };
    }
    server.addService(definition, handlers);
  }
  const injector = server.createConnectionInjector(grpc.ServerCredentials.createInsecure());
  const door = await listener((socket) => injector.injectConnection(socket), { path: socketPath });
  return {
    socketPath,
    called,
    [Symbol.asyncDispose]: async () => {
      await door[Symbol.asyncDispose]();
      server.forceShutdown();
      await folder[Symbol.asyncDispose]();
    },
  };
}

const same = (bytes: Buffer): Buffer => bytes;
const AS_IS = { requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same };

function pass(
  call: grpc.ServerDuplexStream<Buffer, Buffer>,
  onward: grpc.ClientDuplexStream<Buffer, Buffer>,
  input: DescMessage,
  output: DescMessage,
): void {
  call.on("data", (bytes: Buffer) => void onward.write(ofTheFuture(input, bytes)));
  call.on("end", () => onward.end());
  call.on("cancelled", () => onward.cancel());
  call.on("error", () => onward.cancel());
  onward.on("metadata", (metadata: grpc.Metadata) => call.sendMetadata(metadata));
  onward.on("data", (bytes: Buffer) => void call.write(ofTheFuture(output, bytes)));
  onward.on("error", (error: grpc.ServiceError) => void call.emit("error", error));
  onward.on("end", () => undefined);
  onward.on("status", ({ code, metadata }: grpc.StatusObject) => {
    if (code === grpc.status.OK) call.end(metadata);
  });
}

function ofTheFuture(schema: DescMessage, bytes: Buffer): Buffer {
  const message = fromBinary(schema, bytes);
  addFields(schema, message);
  return Buffer.from(toBinary(schema, message));
}

function addFields(schema: DescMessage, message: Message): void {
  message.$unknown = [...(message.$unknown ?? []), ...FUTURE_FIELDS];
  const fields = reflect(schema, message);
  for (const field of schema.fields) {
    if (!fields.isSet(field)) continue;
    if (field.fieldKind === "message") addFields(field.message, fields.get(field).message);
    else if (field.fieldKind === "list" && field.listKind === "message") {
      for (const item of fields.get(field)) if (isReflected(item)) addFields(field.message, item.message);
    }
  }
}

function isReflected(value: unknown): value is { readonly message: Message } {
  return typeof value === "object" && value !== null && "message" in value && isMessage(value.message);
}
