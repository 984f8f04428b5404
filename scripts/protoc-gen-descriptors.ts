/**
 * Plugin of buf (buf.gen.yaml): writes all proto files as serialized descriptors, for the reflection service. The
 * generated messages cannot be used for that, because the agent's bundle contains their descriptors in another form.
 */
import { create, type DescEnum, type DescFile, type DescMessage, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { createEcmaScriptPlugin, runNodeJs } from "@bufbuild/protoplugin";

/** Full names of everything that a file declares, because a client may ask for any of them. */
function symbolsOf(file: DescFile): string[] {
  const ofMessage = (message: DescMessage): string[] => [
    message.typeName,
    ...message.fields.map(({ name }) => `${message.typeName}.${name}`),
    ...message.nestedEnums.flatMap(ofEnum),
    ...message.nestedMessages.flatMap(ofMessage),
  ];
  // In protobuf, the values of an enum are siblings of the enum, not its children (protobuf.com/docs/language-spec).
  const ofEnum = ({ typeName, values }: DescEnum): string[] => [
    typeName,
    ...values.map(({ name }) => typeName.replace(/[^.]+$/, name)),
  ];
  return [
    ...file.services.flatMap(({ typeName, methods }) => [
      typeName,
      ...methods.map(({ name }) => `${typeName}.${name}`),
    ]),
    ...file.messages.flatMap(ofMessage),
    ...file.enums.flatMap(ofEnum),
  ];
}

/** Comments are left out, because they would be most of the bytes. */
function descriptorOf({ proto }: DescFile): string {
  const { sourceCodeInfo: _comments, $unknown: _unknown, ...rest } = proto;
  const bytes = toBinary(FileDescriptorProtoSchema, create(FileDescriptorProtoSchema, rest));
  return Buffer.from(bytes).toString("base64");
}

runNodeJs(
  createEcmaScriptPlugin({
    name: "protoc-gen-descriptors",
    version: "v1",
    generateTs(schema) {
      const files = schema.allFiles.map((file) => ({
        name: `${file.name}.proto`,
        imports: file.proto.dependency,
        symbols: symbolsOf(file),
        descriptor: descriptorOf(file),
      }));
      const [first] = schema.files;
      if (first === undefined) throw new Error("there are no proto files to generate from");
      const output = schema.generateFile("descriptors.ts");
      output.preamble(first);
      output.print(`/** A proto file: its imports, the full names of what it declares, its FileDescriptorProto in base64. */
export interface ProtoFile {
  readonly name: string;
  readonly imports: readonly string[];
  readonly symbols: readonly string[];
  readonly descriptor: string;
}

/** All proto files of the schema, and those that they import. */
export const PROTO_FILES: readonly ProtoFile[] = ${JSON.stringify(files, undefined, 2)};`);
    },
  }),
);
