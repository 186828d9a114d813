-- Whether a partition has any of the keys that most partitions do without. They are asked for together, once in a call: what follows
-- asks for each of them only if one is there. Who adds to one of them says so in `any`.
-- CALL: any = nil
local seldom = {}

function seldom.any()
  if call.seldom_any == nil then
    call.seldom_any = redis.call('EXISTS', key.delayed, key.replaced, key.successors, key.handovers_told, key.leaving,
      key.subscription_expiry) > 0
  end
  return call.seldom_any
end
