/** A refusal in the API's form. */
export class ApiFailure extends Error {
  readonly status: number;
  /** For programs, such as `image_not_ready`. */
  readonly code: string;

  constructor(status: number, code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.status = status;
    this.code = code;
  }
}

/** 404, the same for every kind of thing. */
export function notFound(): ApiFailure {
  return new ApiFailure(404, "not_found", "resource not found");
}

/** 404 of a path that has no route, as its router says it: plain text, and no code (go-chi/chi, mux.go). */
export class Unrouted extends ApiFailure {
  constructor() {
    super(404, "", "404 page not found\n");
  }
}

/** 409: not in the state that the operation needs. */
export function invalidState(message: string): ApiFailure {
  return new ApiFailure(409, "invalid_state", message);
}

/** 409: the host has not enough left for another machine. */
export function insufficientResources(message: string): ApiFailure {
  return new ApiFailure(409, "insufficient_resources", `insufficient resources: ${message}`);
}

/** A body that does not fit the API's schema. The server's answer is not valid JSON then, like the substrate's. */
export class SchemaFailure extends ApiFailure {
  constructor(path: string, problem: string) {
    super(400, "Bad Request", `request body has an error: doesn't match schema: Error at "${path}": ${problem}`);
  }
}

/**
 * The error itself where it is a refusal, else 500: as on the substrate the caller gets no cause, which the server
 * logs.
 */
export function asInternal(message: string, error: unknown): ApiFailure {
  return error instanceof ApiFailure ? error : new ApiFailure(500, "internal_error", message, { cause: error });
}
