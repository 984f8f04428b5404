import { FileTree } from "../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { GuestAgent } from "../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";

/** This library's options, by the names of the schema's fields. */
const OPTIONS: ReadonlyMap<string, string> = new Map<string, string>(
  [FileTree.file, ...GuestAgent.file.dependencies].flatMap(({ messages }) =>
    messages.flatMap(({ fields }) => fields.map(({ name, localName }) => [name, localName] as const)),
  ),
).set("create_parents", "parents");

/** Matches, in order: quoted text of the caller or the guest; a frame's name, which the options lack; a field. */
const WORDS = /"(?:[^"\\]|\\.)*"|\b(?:start|attach)\.(?=[a-z])|\b[a-z]+\d*(?:_[a-z\d]+)+\b/g;

/** An agent's message with this library's options in place of the schema's fields, such as `keep.replaceEnded`. */
export function inOptions(message: string): string {
  return message.replaceAll(WORDS, (word) => {
    if (word.startsWith('"')) return word;
    return word.endsWith(".") ? "" : (OPTIONS.get(word) ?? word);
  });
}
