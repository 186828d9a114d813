-- What partitions of one node, or below one collection, tell each other of credit, by way of the frontends: who has items and no credit for them, and
-- who gives some of its own. `wants` lists those in need, the one longest in need first: their
-- number, what is locked there, and the pool that they are numbered in (`-`: the node).
-- NEEDS: turns ready log inflight
--- @include partition allotments hints ending owner pools matching
local lending = {gifts = {}}

-- Before what was freed is used here: whoever has less gets some of it, and whoever has nothing gets the last of it, so that no
-- partition starves while any subscriber has credit.
function lending.yield()
  local freed = ending.freed
  if arg.wants == '' or freed == 0 or not (partition.several or partition.pools) then return end
  local locked = redis.call('HLEN', key.inflight)
  for to, has, pool in string.gmatch(arg.wants, '(%d+) (%d+) (%S+)') do
    local own = pool == '-'
    local has_less = tonumber(has) == 0 or locked + freed > tonumber(has) + 1
    if freed > 0 and not (own and to == arg.number) and has_less then
      for _, gift in ipairs(allotments.gather(to, 1, own and '' or pool, '')) do lending.gifts[#lending.gifts + 1] = gift end
      freed = freed - 1
    end
  end
end

-- After the dispatch: how much credit is wanted here, how many subscribers have some to spare, how much is locked, what was
-- given away, whose subscription has ended here of itself, who holds less now of what was beyond its credit here, the
-- pools that have subscribers here, and, where subscriptions select, whose credit is wanted (`*`: of those who do not).
function lending.report()
  if not (partition.several or partition.pools) then return {} end
  local spare = redis.call('ZCARD', key.turns)
  local locked = redis.call('HLEN', key.inflight)
  local wanted, who = 0, owner.get()
  -- While the partition is owned nobody else's credit is of use here, and none while it is paused.
  local waits = partition.cursor ~= partition.tail or redis.call('EXISTS', key.ready) == 1
    or partition.hinted and hints.any(0, hints.LAST)
  -- Where subscriptions select, not everybody's credit is of use.
  local starved = #matching.whom > 0 or (not partition.selects and spare == 0 and waits)
  if starved and not (who or partition.paused) then
    wanted = math.min(allotments.MOST, math.max(1, redis.call('XLEN', key.log) - partition.kept - locked))
  end
  local owing = {}
  for _, subid in ipairs(ending.owing) do
    -- An owner's credit is nobody's to count.
    if not who or who.subid ~= subid then
      owing[#owing + 1] = {subid, pools.of(subid) or ''}
    end
  end
  return {wanted, spare, locked, lending.gifts, ending.ended, owing, partition.pools or '',
    #matching.whom > 0 and matching.whom or nil}
end
