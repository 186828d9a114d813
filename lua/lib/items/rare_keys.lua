-- Whether a partition has any of the keys that most partitions do not have. One EXISTS per call asks for all of them; operations look for
-- each only if one exists.
-- CALL: any = nil
local rare_keys = {}

function rare_keys.any()
  if call.rare_keys_any == nil then
    call.rare_keys_any = redis.call('EXISTS', key.delayed, key.replaced, key.successors, key.outbox, key.locks_to_release,
      key.subscription_expiry) > 0
  end
  return call.rare_keys_any
end

-- Writes to one of them, so that this call looks for it too.
function rare_keys.write(command, name, first, second)
  call.rare_keys_any = true
  redis.call(command, name, first, second)
end

-- The same by the write buffer.
function rare_keys.add(command, name, first, second)
  call.rare_keys_any = true
  write_buffer.add(command, name, first, second)
end
