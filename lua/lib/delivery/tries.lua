-- The next try of what has not been confirmed in time; after the last one silence counts as a delivery that came back.
-- Bounded as a dispatch is, and for the same reason; what subscriptions that end give back counts too.
local tries = {LIMIT = 200, BYTES = 1048576}

-- Gives the rows to send and whether more are due.
function tries.run()
  local due = call.partition_confirms and call.caller_sends
    and redis.call('ZRANGEBYSCORE', key.retries, '-inf', call.partition_now, 'LIMIT', 0, tries.LIMIT) or {}
  local made, bytes = {}, 0
  for i, position in ipairs(due) do
    -- One by one: a subscription that ends takes others of these along.
    local flight, stage, tried = flights.at({position})[1], unconfirmed.of(position)
    if flight and tried >= schedule.tries() then
      bounces.take(flight, 'silent', false)
    elseif flight then
      local row = again.row(flight)
      schedule.put(position, stage, tried + 1)
      made[#made + 1] = row
      bytes = bytes + (row and #row[8] or 0)
    else
      unconfirmed.forget(position)
    end
    if i < #due and (bytes >= tries.BYTES or call.ending_freed >= tries.LIMIT or budget.over()) then
      writes.flush()
      return made, true
    end
  end
  writes.flush()
  return made, #due == tries.LIMIT
end
