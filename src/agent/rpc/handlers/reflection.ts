import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { PROTO_FILES, type ProtoFile } from "../../../shared/gen/descriptors.ts";
import {
  ServerReflection,
  type ServerReflectionRequest,
  ServerReflectionRequestSchema,
  ServerReflectionResponseSchema,
} from "../../../shared/gen/grpc/reflection/v1/reflection_pb.ts";
import type { Call } from "../call.ts";
import { messageFrame } from "../codec.ts";
import type { Router } from "../router.ts";

/** gRPC status codes for an ErrorResponse. */
const NOT_FOUND = 5;
const INVALID_ARGUMENT = 3;
/** Largest number of characters of a requested name that an error contains. */
const NAME_LIMIT = 200;

type Question = ServerReflectionRequest["messageRequest"];
type Answer = NonNullable<MessageInitShape<typeof ServerReflectionResponseSchema>["messageResponse"]>;

/** Serves gRPC server reflection, with which tools such as grpcurl find the services and their messages. */
export function serveReflection(router: Router): void {
  router.bidiStream(ServerReflection.method.serverReflectionInfo, (call) => answerAll(call, () => router.services()));
}

async function answerAll(call: Call, services: () => readonly string[]): Promise<void> {
  const messages = call.messages();
  for (let message = await messages.next(); message !== undefined; message = await messages.next()) {
    const request = call.decode(ServerReflectionRequestSchema, message);
    const response = create(ServerReflectionResponseSchema, {
      validHost: request.host,
      originalRequest: request,
      messageResponse: answerTo(request.messageRequest, services),
    });
    call.send(messageFrame(ServerReflectionResponseSchema, response));
    await call.drained();
  }
}

function answerTo({ case: kind, value: name }: Question, services: () => readonly string[]): Answer {
  switch (kind) {
    case "fileByFilename":
      return fileWithImports(name, (file) => file.name === name);
    case "fileContainingSymbol":
      return fileWithImports(name, (file) => file.symbols.includes(name));
    case "fileContainingExtension":
      return errorResponse(NOT_FOUND, "the schema has no extensions");
    case "allExtensionNumbersOfType":
      return PROTO_FILES.some(({ symbols }) => symbols.includes(name))
        ? { case: "allExtensionNumbersResponse", value: { baseTypeName: name, extensionNumber: [] } }
        : notFound(name);
    case "listServices":
      return { case: "listServicesResponse", value: { service: services().map((service) => ({ name: service })) } };
    case undefined:
      return errorResponse(INVALID_ARGUMENT, "message_request must be set");
  }
}

function fileWithImports(name: string, isFile: (file: ProtoFile) => boolean): Answer {
  const first = PROTO_FILES.find(isFile);
  if (first === undefined) return notFound(name);
  const files = new Set([first]);
  // Iterating over a Set also visits the elements that are added during the loop.
  for (const { imports } of files) {
    for (const file of PROTO_FILES) if (imports.includes(file.name)) files.add(file);
  }
  const descriptors = Array.from(files, ({ descriptor }) => Buffer.from(descriptor, "base64"));
  return { case: "fileDescriptorResponse", value: { fileDescriptorProto: descriptors } };
}

function notFound(name: string): Answer {
  return errorResponse(NOT_FOUND, `the schema has no ${name.slice(0, NAME_LIMIT)}`);
}

function errorResponse(errorCode: number, errorMessage: string): Answer {
  return { case: "errorResponse", value: { errorCode, errorMessage } };
}
