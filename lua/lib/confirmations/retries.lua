-- Sends unconfirmed deliveries again. After the last try, the delivery counts as bounced. Bounded as `dispatch` is, and for the same
-- reason; items given back by ending subscriptions count too.
local retries = {LIMIT = 200, BYTES = 1048576}

-- Returns the deliveries to send, and whether more are due.
function retries.send()
  local due = call.partition_before.confirms and call.caller_sends
    and redis.call('ZRANGEBYSCORE', key.retries, '-inf', call.partition_now, 'LIMIT', 0, retries.LIMIT) or {}
  local made, bytes = {}, 0
  for i, position in ipairs(due) do
    -- One by one: a subscription that ends gives back others of these.
    local flight, stage, tried, message = inflight.get_many({position})[1], confirmations.of(position)
    if flight and tried >= retry_schedule.attempts() then
      delivery_failures.end_locks({flight}, 'silent', false)
    elseif flight then
      bytes = bytes + (redelivery.add(made, flight) or 0)
      retry_schedule.put(position, stage, tried + 1, message)
    else
      confirmations.remove(position)
    end
    if i < #due and (bytes >= retries.BYTES or call.lock_end_freed >= retries.LIMIT or budget.over()) then
      write_buffer.flush()
      return made, true
    end
  end
  write_buffer.flush()
  return made, #due == retries.LIMIT
end
