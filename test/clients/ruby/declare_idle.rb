# Declares idle over a unix socket with the grpc of Ruby, and prints the length of the answer.

require "grpc"

METHOD = "/svc.guest.v1alpha1.WorkloadService/DeclareIdle"
AS_IT_IS = :itself.to_proc

stub = GRPC::ClientStub.new(ARGV.fetch(0), :this_channel_is_insecure)
puts stub.request_response(METHOD, "", AS_IT_IS, AS_IT_IS, deadline: Time.now + 30).bytesize
