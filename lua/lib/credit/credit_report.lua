-- A script's report on credit that several partitions share; the frontend carries it to the coordinators. It has this partition's demand
-- for credit, what subscribers hold here whose credit is coordinated elsewhere, and the grants that this partition makes as a
-- coordinator.
-- CALL: unknown = {}, unused = {}
-- `unused` has subids and how many items of a grant in this script, or reserved earlier, were not handed out.
local credit_report = {MOST = 200, LOOKED_AT = 32}

-- Reports a grant for a subscriber that is unknown here: 1 in the last column. To that two are added for each item that was not handed
-- out. The coordinator books its own grants at once.
function credit_report.refuse(subid, pool, number)
  if pool == '' and credit.coordinates() then
    ledger.take_own_grant(subid, tonumber(number), math.huge)
    credit.update_turn(subid)
    return
  end
  local held = partition_owner.is(subid) and 0 or credit.lock_count(subid)
  call.credit_report_unknown[#call.credit_report_unknown + 1] = {subid, held, tonumber(number), pool, 1}
end

-- Returns the last holders of the next items that came back, which are offered to others first.
local function last_holders()
  local places = call.partition_before.fair and fair_order.first(credit_report.LOOKED_AT)
    or redis.call('ZRANGE', key.ready, 0, credit_report.LOOKED_AT - 1)
  if #places == 0 then return '' end
  local names = redis.call('HMGET', key.history, unpack(places))
  for i, line in ipairs(names) do names[i] = line and string.match(line, '^%S+ (%d+)') or '-' end
  return ' ' .. table.concat(names, ' ')
end

-- Returns how much credit is wanted here, and of whom: none while the partition is owned or paused.
local function demand()
  if partition_owner.get() or call.partition_paused then return 0, 'A' end
  local whom = {}
  for _, each in ipairs(call.matching_whom or {}) do
    if each[2] ~= '' or call.partition_several then whom[#whom + 1] = each end
  end
  local waits = call.partition_cursor ~= call.partition_tail or redis.call('EXISTS', key.ready) == 1
    or call.partition_hinted and scheduling.has_ranks(0, scheduling.LAST)
  -- In a node of one partition `ready_subscribers` has only those whose credit is here.
  local served = not call.partition_several and redis.call('EXISTS', key.ready_subscribers) == 1
  if #whom == 0 and (call.partition_selects or not waits or served) then return 0, 'A' end
  local stored = redis.call('XLEN', key.log) - call.partition_kept - redis.call('HLEN', key.inflight)
  local wanted = math.min(credit_report.MOST, math.max(1, stored))
  if #whom > 0 then return wanted, whom end
  return wanted, 'A' .. last_holders()
end

-- Reports holdings of subscribers whose locks began or ended in this script. The coordinator books its own at once.
local function held_here()
  local found, unused = call.credit_report_unknown, call.credit_report_unused
  for _, subscriber in ipairs(call.dispatch_granted) do unused[subscriber.subid] = subscriber.limit - subscriber.held end
  for subid in pairs(call.lock_end_touched) do
    local subscriber, last = subscriptions.get(subid), grants.last(subid)
    local pool = subscriber and subscriber.pool or call.lock_end_pools[subid]
    local left = unused[subid] or 0
    local shut = 2 * left
    if pool then
      found[#found + 1] = {subid, credit.lock_count(subid), last, pool, shut}
    elseif credit.coordinates() then
      ledger.take_own_grant(subid, last, left)
      credit.update_turn(subid)
    elseif call.partition_several and not partition_owner.is(subid) then
      found[#found + 1] = {subid, credit.lock_count(subid), last, '', shut}
    end
  end
  return found
end

local function names_in_pool(whom, pool)
  local names = {}
  for _, each in ipairs(whom) do
    if each[2] == pool then names[#names + 1] = each[1] end
  end
  return names
end

-- Returns the report since which credit has been wanted without a break: a coordinator that heard of it earlier may have forgotten. Empty
-- when none is wanted.
local function since(wanted, version)
  if wanted == 0 and call.partition_wants_since then redis.call('HDEL', key.meta, 'wants_since') end
  if wanted == 0 then return '' end
  if not call.partition_wants_since then
    call.partition_wants_since = string.format('%d', version)
    redis.call('HSET', key.meta, 'wants_since', call.partition_wants_since)
  end
  return call.partition_wants_since
end

-- Returns an empty list in a partition that shares no credit; else the version of the report, how much is wanted, since when, of whom
-- (`A` and who is avoided, or rows of subid and pool), the holdings, the pools with subscribers here if something is wanted, and the
-- grants made.
function credit_report.make()
  local shares = call.partition_several or call.partition_pools or next(call.lock_end_pools)
  if not shares and #call.credit_report_unknown == 0 then return {} end
  local wanted, whom = demand()
  local held = held_here()
  -- What a coordinator is told has a number of its own: an earlier report that arrives later must not count, whatever the clock does.
  local version = (#held > 0 or wanted > 0) and partition.next_number() or call.partition_token
  if credit.coordinates() then
    local names = type(whom) == 'table' and names_in_pool(whom, '')
    local own = (names and #names == 0) and 0 or wanted
    coordinator.want(arg.number, version, own, names and 'W ' .. table.concat(names, ' ') or whom)
    coordinator.run()
  end
  return {version, wanted, since(wanted, version), whom, held, wanted > 0 and call.partition_pools or '', call.coordinator_made}
end
