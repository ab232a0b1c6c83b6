// A small definition of each language, to begin with.
import actions from './approval.yaml?raw';
import dag from './dag.yaml?raw';
import playbook from './hello.yaml?raw';
import linear from './linear.yaml?raw';
import plan from './plan.yaml?raw';

export const TEMPLATES: Record<string, string> = { playbook, plan, dag, actions, linear };
